"""Options in the help of `lakelog` work where it says that they do."""

from __future__ import annotations

import re

import pytest

from lakelog.cli.main import run
from unit.cli.command_model import accepted, commands

EVERYWHERE = "Options of all commands"
WITH_BROKER = "Options of all commands that connect to a broker"
WITHOUT_BROKER = {
    "dev",
    "serve",
    "explain",
    "debug requests",
    "metadata export",
    "metadata import",
}


def shown(heading: str, capsys: pytest.CaptureFixture[str]) -> set[str]:
    """The options below a heading of `lakelog --help`."""
    assert run(["--help"]) == 0
    section = capsys.readouterr().out.partition(f"{heading}:\n")[2].partition("\n\n")[0]
    options = set(re.findall(r"(?<![\w-])--?[a-z]+\b", section))
    assert options
    return options - {"-vv"}


@pytest.mark.parametrize("words", commands())
def test_every_command_accepts_the_options_of_every_command(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    known = accepted(words)
    assert shown(EVERYWHERE, capsys) <= known
    asks_broker = words not in WITHOUT_BROKER
    assert (shown(WITH_BROKER, capsys) <= known) == asks_broker


@pytest.mark.parametrize("words", commands())
def test_the_options_that_may_stand_first_are_accepted_where_help_says(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given before the command, with its own help after it: nothing is said to be unknown."""
    first = ["-q", "-v", "-vv", "--debug"]
    if words not in WITHOUT_BROKER:
        first += ["-b", "127.0.0.1:1", "--timeout", "1s"]
    command = commands()[words]
    needed = [each for each in command.arguments() if each.required]
    values = [value for each in needed for value in (*each.option_strings[:1], "1")]
    command.parse([*values, *first])
