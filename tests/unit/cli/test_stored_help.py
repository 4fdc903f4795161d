from __future__ import annotations

import pytest

from lakelog.cli.main import COMMANDS, run
from lakelog.cli.stored_help import FOLDER, wanted_page

PAGES = {path.stem: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.txt")}
"""`test_help_writer.py` compares them with the declarations."""


@pytest.mark.parametrize("name", PAGES)
def test_help_of_every_command_is_its_page(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    noun, _, command = name.partition("-")
    assert noun in COMMANDS
    words = [noun, command] if command else [noun]
    for flag in ("--help", "-h"):
        assert run([*words, flag]) == 0
        assert capsys.readouterr().out == PAGES[name]


def test_a_noun_alone_shows_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topic"]) == 0
    assert capsys.readouterr().out == PAGES["topic"]
    assert run(["config", "--help"]) == 0
    assert "\n  explain " in capsys.readouterr().out


def test_options_before_the_command_do_not_hide_its_page() -> None:
    assert wanted_page("topic", ["-f", "json", "list", "--help"]) == PAGES["topic-list"]
    assert wanted_page("topic", ["../../topic", "--help"]) == PAGES["topic"]


def test_a_value_after_two_dashes_is_not_a_flag() -> None:
    assert wanted_page("produce", ["--", "--help"]) is None
    assert wanted_page("topic", ["list"]) is None
