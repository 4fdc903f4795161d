"""The commands of `lakelog`, and what each takes, from their declarations."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from cyclopts import App

from lakelog.cli.help_writer import arguments_of, commands_of
from lakelog.cli.main import COMMANDS


@cache
def commands() -> dict[str, App]:
    """Each command by its words: `serve`, `topic list`."""
    found: dict[str, App] = {}
    for noun in COMMANDS:
        app = import_module(f"lakelog.cli.commands.{noun}").app
        nested = {f"{noun} {name}": command for name, command in commands_of(app)}
        found |= nested or {noun: app}
    return found


@cache
def accepted(words: str) -> frozenset[str]:
    """The options of the command with these words."""
    names = {name for argument in arguments_of(commands()[words]) for name in argument.names}
    return frozenset(names | {"--help", "-h"})
