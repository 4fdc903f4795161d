"""Options that several commands share, and the clients that they open.

A broker on this host may still be starting: `lakelog dev &` returns before the broker listens. A
refused connection to a loopback address is therefore retried for a while; to another address it is
an error.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from lakelog.cli.declaration import Arguments, common
from lakelog.cli.failures import CliError
from lakelog.cli.positions import parse_duration_s
from lakelog.cli.render import note

if TYPE_CHECKING:
    from lakelog.client.admin import Admin
    from lakelog.client.cluster import Startup


Format = Literal["table", "json", "jsonl"]
_BROKERS = "127.0.0.1:9092"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verbosity:
    """How much to print on stderr; every command has these options."""

    quiet: bool = False
    verbose: int = 0
    debug: bool = False

    arguments: ClassVar[Arguments] = {
        "quiet": common("Print only errors and warnings.", "-q"),
        "verbose": common("Log more on stderr; -vv logs every request.", "-v", action="count"),
        "debug": common("Show the traceback of an error."),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSession(Verbosity):
    """How to reach the brokers, and how much to print."""

    brokers: str = field(default_factory=lambda: os.environ.get("LAKELOG_BROKERS") or _BROKERS)
    timeout: str = "10s"

    arguments: ClassVar[Arguments] = {
        **Verbosity.arguments,
        "brokers": common(
            "HOST:PORT of brokers, separated by commas (default 127.0.0.1:9092). [LAKELOG_BROKERS]",
            *("-b", "--brokers", "--bootstrap-server"),
            metavar="HOST:PORT",
        ),
        "timeout": common("How long to wait for a response: 500ms, 10s, 2m (default 10s)."),
    }

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

    arguments: ClassVar[Arguments] = {
        "format": common("Format of the result on stdout (default table).", "-f")
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Consent:
    """Whether destructive commands ask for confirmation."""

    yes: bool = False

    arguments: ClassVar[Arguments] = {"yes": common("Skip the confirmation.", "-y")}


def split_pair(text: str, what: str) -> tuple[str, str]:
    """Return the two parts of `key=value`. Raises `CliError`, naming `what`."""
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise CliError("LL0902", f"{what} {text!r} is not KEY=VALUE")
    return key, value


START_S = 5.0
"""Seconds that a command waits for a broker on this host, unless `--timeout` is shorter."""


def open_admin(session: CommandSession) -> Admin:
    """Return an administrator. If the brokers are on this host, its first request waits for one.

    That request raises `NotStartedError` if no broker listens within `START_S`.
    """
    from lakelog.client.admin import Admin
    from lakelog.client.view import is_loopback, parse_bootstrap

    is_local = all(is_loopback(host) for host, _ in parse_bootstrap(session.brokers))
    startup = starting(session, min(START_S, session.timeout_s)) if is_local else None
    return Admin(session.brokers, timeout_s=session.timeout_s, startup=startup)


def starting(session: CommandSession, limit_s: float) -> Startup:
    """Return a wait of `limit_s` for a broker; a long one prints a note on a terminal.

    limit_s: seconds.
    """
    from lakelog.client.cluster import Startup

    def notify() -> None:
        if sys.stderr.isatty():
            note(f"waiting for a broker at {session.brokers} ...", quiet=session.quiet)

    return Startup(limit_s, notify)
