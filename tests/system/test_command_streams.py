"""Commands whose standard streams are closed, full or not UTF-8, and arguments that are no text."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from broker_process import LAKELOG
from command_shell import Shell

_TIMEOUT_S = 120


@pytest.fixture
def shell(bootstrap: str) -> Shell:
    return Shell(bootstrap)


def bash(shell: Shell, script: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["bash", "-c", script.replace("lakelog", LAKELOG)],
        capture_output=True,
        env=shell.environment | environment,
        timeout=_TIMEOUT_S,
        check=False,
    )


@pytest.mark.parametrize(
    ("target", "reason"), [(">&-", "Bad file descriptor"), ("> /dev/full", "No space left")]
)
@pytest.mark.parametrize("buffered", ["", "1"])
def test_output_that_cannot_be_written(
    shell: Shell, topic: str, target: str, reason: str, buffered: str
) -> None:
    shell.out("produce", topic, given=b"a\n")
    for command in (f"topic describe {topic}", f"consume {topic} -e", "topic list -f json"):
        done = bash(shell, f"lakelog {command} {target}", PYTHONUNBUFFERED=buffered)
        assert done.returncode == 1, command
        assert done.stderr.decode().startswith(f"error[LL0904] standard output: {reason}"), command
        assert done.stderr.count(b"\n") == 2
    for command in ("--help", "--version", "topic list --help", "explain"):
        assert bash(shell, f"lakelog {command} {target}").returncode == 1, command


@pytest.mark.parametrize("member", ["", "-g {topic}"])
def test_waiting_for_records_ends_when_nothing_reads_them(
    shell: Shell, topic: str, member: str
) -> None:
    shell.out("produce", topic, given=b"a\nb\nc\n")
    words = f"{topic} -o start {member.format(topic=topic)}"
    done = bash(shell, f"lakelog consume {words} | head -1; echo ${{PIPESTATUS[0]}}")
    assert (done.stdout, done.stderr) == (b"a\n0\n", b"")


def test_a_group_commits_nothing_that_could_not_be_written(shell: Shell, topic: str) -> None:
    shell.out("produce", topic, given=b"a\nb\n")
    for target in (">&-", "> /dev/full"):
        assert bash(shell, f"lakelog consume {topic} -g {topic} -e {target}").returncode == 1
    assert shell.out("consume", topic, "-g", topic, "-e") == b"a\nb\n"


def test_a_command_that_prints_nothing_needs_no_output(shell: Shell, unused: str) -> None:
    assert bash(shell, f"lakelog topic create {unused} >&-").returncode == 0
    done = bash(shell, f"lakelog topic delete {unused} -y 2>&-")
    assert (done.returncode, done.stdout) == (0, b"")
    assert bash(shell, f"lakelog topic describe {unused} 2>&-").returncode == 3
    assert bash(shell, "lakelog topic list <&- >&- 2>&-").returncode == 1


def test_closed_input(shell: Shell, topic: str) -> None:
    done = bash(shell, f"lakelog produce {topic} <&-")
    assert done.returncode == 3
    assert done.stderr.startswith(b"error[LL0903] standard input: ")
    done = bash(shell, f"lakelog topic delete {topic} <&-")
    assert done.returncode == 2
    assert done.stderr.startswith(b"error[LL0901]")


@pytest.mark.parametrize(
    "words",
    [
        (b"topic", b"describe", b"\xff"),
        (b"topic", b"create", b"\xff"),
        (b"topic", b"create", b"t", b"-c", b"retention.ms=\xff"),
        (b"consume", b"\xff"),
        (b"consume", b"TOPIC", b"-g", b"\xff"),
        (b"group", b"describe", b"\xff"),
        (b"produce", b"\xff"),
        (b"produce", b"TOPIC", b"-H", b"\xff=1"),
        (b"topic", b"list", b"-b", b"\xff:9092"),
        (b"topic", b"list", b"--\xff"),
        (b"\xff",),
        (b"consume", b"TOPIC", b"-o", b"\xff"),
        (b"config", b"get", b"\xff"),
        (b"txn", b"describe", b"\xff"),
    ],
)
def test_an_argument_that_is_not_utf_8_is_refused(
    shell: Shell, topic: str, words: tuple[bytes, ...]
) -> None:
    named = [topic.encode() if word == b"TOPIC" else word for word in words]
    done = subprocess.run(
        [os.fsencode(LAKELOG), *named],
        input=b"x\n",
        capture_output=True,
        env=shell.environment,
        timeout=_TIMEOUT_S,
        check=False,
    )
    text = done.stderr.decode()
    assert text.startswith("error[LL0"), text
    assert "LL0999" not in text
    assert "\\xff" in text, text
    assert done.returncode in (2, 3), text
    assert done.stdout == b""


def test_a_name_that_fits_into_no_request(shell: Shell) -> None:
    refused = shell.refusal("topic", "describe", "x" * 40_000)
    assert refused[:2] == (2, "LL0902")


def test_bytes_of_any_kind_as_key_value_and_file(shell: Shell, topic: str, tmp_path: Path) -> None:
    file = os.fsencode(tmp_path) + b"/\xff"
    Path(os.fsdecode(file)).write_bytes(b"v\n")
    words = [
        os.fsencode(LAKELOG),
        b"produce",
        topic.encode(),
        file,
        b"-k",
        b"\xfe",
        b"-H",
        b"h=\xfd",
    ]
    subprocess.run(words, env=shell.environment, timeout=_TIMEOUT_S, check=True)
    words = [os.fsencode(LAKELOG), b"consume", topic.encode(), b"-e", b"-f", b"%k %v %h \xfc"]
    printed = subprocess.check_output(words, env=shell.environment, timeout=_TIMEOUT_S)
    assert printed == b"\xfe v h=\xfd \xfc"


def test_output_is_utf_8_in_any_locale(shell: Shell, topic: str) -> None:
    done = bash(shell, f"lakelog consume {topic} -g 'Zahlungen-\u00fc' -e", LC_ALL="C.UTF-8")
    assert done.returncode == 0, done.stderr
    for encoding in ("ascii", "latin-1", "utf-8"):
        done = bash(shell, "lakelog group list -f json", PYTHONIOENCODING=encoding)
        assert done.returncode == 0, done.stderr
        assert "Zahlungen-\u00fc" in done.stdout.decode()
