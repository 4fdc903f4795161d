"""Options that several commands share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import App, Group, Parameter

from lakelog.cli.failures import CliError
from lakelog.cli.moments import parse_duration_s

COMMON = Group("Common options", sort_key=100)
Format = Literal["table", "json", "jsonl"]
Flag = Annotated[bool, Parameter(negative="")]
"""An option without a value."""
Settings = Annotated[list[str] | None, Parameter(name="--set", negative="", consume_multiple=False)]
"""`--set KEY=VALUE`, which may be repeated."""
Partitions = Annotated[
    list[int] | None, Parameter(name=["--partition", "-p"], negative="", consume_multiple=False)
]
"""`--partition N`, which may be repeated."""


@Parameter(name="*", group=COMMON)
@dataclass(frozen=True, slots=True, kw_only=True)
class Verbosity:
    """How much to print on stderr; every command has these options."""

    quiet: Annotated[
        bool, Parameter(name=["--quiet", "-q"], negative="", help="Print only errors and warnings.")
    ] = False
    verbose: Annotated[
        int,
        Parameter(
            name=["--verbose", "-v"],
            count=True,
            help="Log more on stderr; -vv logs every request.",
        ),
    ] = 0
    debug: Annotated[bool, Parameter(negative="", help="Show the traceback of an error.")] = False


@Parameter(name="*", group=COMMON)
@dataclass(frozen=True, slots=True, kw_only=True)
class Session(Verbosity):
    """How to reach the brokers, and how much to print."""

    brokers: Annotated[
        str,
        Parameter(
            name=["--brokers", "-b", "--bootstrap-server"],
            env_var="LAKELOG_BROKERS",
            help="HOST:PORT of brokers, separated by commas (default 127.0.0.1:9092).",
        ),
    ] = "127.0.0.1:9092"
    timeout: Annotated[
        str, Parameter(help="How long to wait for a response: 500ms, 10s, 2m (default 10s).")
    ] = "10s"

    @property
    def timeout_s(self) -> float:
        seconds = parse_duration_s(self.timeout)
        if seconds <= 0:
            raise CliError("LL0902", f"--timeout {self.timeout} must be more than 0")
        return seconds


@Parameter(name="*", group=COMMON)
@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """The format of a result."""

    format: Annotated[
        Format,
        Parameter(name=["--format", "-f"], help="Format of the result on stdout (default table)."),
    ] = "table"


@Parameter(name="*", group=COMMON)
@dataclass(frozen=True, slots=True, kw_only=True)
class Consent:
    """Whether destructive commands ask for confirmation."""

    yes: Annotated[
        bool, Parameter(name=["--yes", "-y"], negative="", help="Skip the confirmation.")
    ] = False


DEFAULT_VERBOSITY = Verbosity()
DEFAULT_SESSION = Session()
DEFAULT_OUTPUT = Output()
NO_CONSENT = Consent()


def noun(name: str, summary: str) -> App:
    """Return the command-line parser of one noun; `main` has handled `--version`."""
    return App(
        name=f"lakelog {name}",
        help=summary,
        help_flags=["--help", "-h"],
        version_flags=[],
        default_parameter=Parameter(show_default=False),
        result_action="return_value",
    )


def split_pair(text: str, what: str) -> tuple[str, str]:
    """Return the two parts of `key=value`. Raises `CliError`, naming `what`."""
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise CliError("LL0902", f"{what} {text!r} is not KEY=VALUE")
    return key, value
