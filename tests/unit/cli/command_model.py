"""The commands of `lakelog`, and what each takes, from their declarations."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from lakelog.cli.declaration import Command
from lakelog.cli.main import COMMANDS


@cache
def commands() -> dict[str, Command]:
    """Each command by its words: `serve`, `topic list`."""
    return {
        f"{noun} {name}".rstrip(): command
        for noun in COMMANDS
        for name, command in import_module(f"lakelog.cli.commands.{noun}").app.commands.items()
    }


@cache
def accepted(words: str) -> frozenset[str]:
    """The options of the command with these words."""
    arguments = commands()[words].arguments()
    return frozenset(name for each in arguments for name in each.option_strings)
