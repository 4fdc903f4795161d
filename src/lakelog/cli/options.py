"""Options that several commands share."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Literal, get_args

from lakelog.cli.failures import CliError
from lakelog.cli.moments import parse_duration_s

if TYPE_CHECKING:
    from lakelog.cli.declaration import Command

Format = Literal["table", "json", "jsonl"]
_BROKERS = "127.0.0.1:9092"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verbosity:
    """How much to print on stderr; every command has these options."""

    quiet: bool = False
    verbose: int = 0
    debug: bool = False

    @staticmethod
    def declare(command: Command) -> None:
        """Add the options to a command."""
        add = partial(command.add_argument, is_common=True)
        add("-q", "--quiet", action="store_true", help="Print only errors and warnings.")
        add(
            *("-v", "--verbose"),
            action="count",
            help="Log more on stderr; -vv logs every request.",
        )
        add("--debug", action="store_true", help="Show the traceback of an error.")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSession(Verbosity):
    """How to reach the brokers, and how much to print."""

    brokers: str = field(default_factory=lambda: os.environ.get("LAKELOG_BROKERS") or _BROKERS)
    timeout: str = "10s"

    @staticmethod
    def declare(command: Command) -> None:
        """Add the options to a command."""
        Verbosity.declare(command)
        add = partial(command.add_argument, is_common=True)
        add(
            *("-b", "--brokers", "--bootstrap-server"),
            metavar="HOST:PORT",
            help="HOST:PORT of brokers, separated by commas (default 127.0.0.1:9092). "
            "[LAKELOG_BROKERS]",
        )
        add("--timeout", help="How long to wait for a response: 500ms, 10s, 2m (default 10s).")

    @property
    def timeout_s(self) -> float:
        seconds = parse_duration_s(self.timeout)
        if seconds <= 0:
            raise CliError("LL0902", f"--timeout {self.timeout} must be more than 0")
        return seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """The format of a result."""

    format: Format = "table"

    @staticmethod
    def declare(command: Command) -> None:
        """Add the option to a command."""
        command.add_argument(
            *("-f", "--format"),
            is_common=True,
            choices=get_args(Format),
            help="Format of the result on stdout (default table).",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Consent:
    """Whether destructive commands ask for confirmation."""

    yes: bool = False

    @staticmethod
    def declare(command: Command) -> None:
        """Add the option to a command."""
        command.add_argument(
            "-y", "--yes", is_common=True, action="store_true", help="Skip the confirmation."
        )


def split_pair(text: str, what: str) -> tuple[str, str]:
    """Return the two parts of `key=value`. Raises `CliError`, naming `what`."""
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise CliError("LL0902", f"{what} {text!r} is not KEY=VALUE")
    return key, value
