from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from lakelog.cli.main import COMMANDS, run, split_leading

_ROOT = Path(__file__).parents[3]


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    printed = capsys.readouterr().out
    assert all(f"\n  {name} " in printed for name in COMMANDS)


def test_a_noun_alone_shows_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["topic"], ["topic", "--help"], ["-q", "topic", "-h"]):
        assert run(words) == 0
        page = capsys.readouterr().out
        assert f"\n\n{COMMANDS['topic']}\n\n" in page
        assert "\n  delete-records  Delete" in page


def test_help_needs_no_other_argument(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["-b", "h:1", "consume", "-o", "--help"], ["consume", "--bogus", "-h"]):
        assert run(words) == 0
        assert capsys.readouterr().out.startswith("Usage: lakelog consume TOPIC [TOPIC...]")


def test_an_unknown_command_of_a_noun_has_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topic", "lst"]) == 2
    assert capsys.readouterr().err == (
        "error[LL0902] unknown command 'topic lst'\nhint: did you mean 'list'?\n"
    )
    assert run(["topic", "--xyzzy", "list"]) == 2
    assert capsys.readouterr().err == (
        "error[LL0902] unknown option '--xyzzy'\nhint: lakelog topic --help\n"
    )


def test_python_runs_the_package() -> None:
    command = [sys.executable, "-m", "lakelog", "topc"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, "did you mean 'topic'?" in done.stderr) == (2, True)


def test_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
    assert capsys.readouterr().out == f"lakelog {project['version']}\n"


def test_version_and_help_load_no_renderer() -> None:
    code = (
        "import sys; from lakelog.cli.main import run; run(['--version']); run(['--help']);"
        "print([m for m in ('rich', 'asyncio', 'pyarrow', 'shutil') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")


def test_an_unknown_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topc"]) == 2
    assert capsys.readouterr().err == (
        "error[LL0902] unknown command 'topc'\nhint: did you mean 'topic'?\n"
    )


def test_a_wrong_option_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "--formt", "json"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error[LL0902] ")
    assert printed.err.endswith("hint: lakelog explain --help\n")
    assert run(["topic", "list", "--formt", "json"]) == 2
    assert capsys.readouterr().err.endswith("hint: lakelog topic list --help\n")


def test_common_options_may_come_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert split_leading(["-b", "h:1", "-q", "--format=json", "topic", "list"]) == (
        ["-b", "h:1", "-q", "--format=json"],
        ["topic", "list"],
    )
    assert split_leading(["-vv", "--timeout"]) == (["-vv", "--timeout"], [])
    assert run(["--format", "json", "explain", "LL0102"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["code"] == "LL0102"


def test_a_closed_pipe_is_a_clean_end() -> None:
    command = f"{sys.executable} -c 'from lakelog.cli.main import main; main()' explain -f jsonl"
    script = f"set -o pipefail; {command} | true"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_records_do_not_linger_until_they_time_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["produce", "orders", "--linger", "10s", "--timeout", "2s"]) == 2
    assert capsys.readouterr().err.startswith(
        "error[LL0902] --linger 10s is not shorter than --timeout 2s\nhint: raise --timeout"
    )
