"""The entry point: imports the module of a noun, runs the command, and reports its exceptions.

This module answers `--version` and `--help` with the standard library alone, because importing the
argument parser takes longer than their limit of 80 ms.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING

from lakelog import __version__
from lakelog.base.errors import KafkaError
from lakelog.cli.failures import CliError, explain_exception, report, suggestion
from lakelog.cli.streams import prepare_streams

if TYPE_CHECKING:
    from types import TracebackType

_EXIT_INTERRUPTED = 130

COMMANDS = {
    "dev": "Run a broker or a cluster for development, on port 9092.",
    "serve": "Run a broker, or several as workers.",
    "topic": "List, create, describe, alter and delete topics; elect leaders.",
    "produce": "Write records from a file or from standard input.",
    "consume": "Read records of topics.",
    "group": "List, describe, reset and delete consumer groups.",
    "txn": "List, describe and abort transactions; remove sinks.",
    "config": "Show, change and explain settings of topics and brokers.",
    "cluster": "Describe brokers, their health and features; remove brokers.",
    "metadata": "Move the metadata of a stopped cluster to another store.",
    "table": "Archive topics into Iceberg tables; compact and audit them.",
    "debug": "Show the requests that a broker handles.",
    "explain": "Explain an error code.",
}
_BROKERS = ("dev", "serve")
"""Commands that configure logging themselves."""
# Options before the noun move behind it, together with their values.
_LEADING_VALUES = {"-b", "--brokers", "--bootstrap-server", "-f", "--format", "--timeout"}
_LEADING_FLAGS = {"-q", "--quiet", "-v", "-vv", "--verbose", "--debug", "-y", "--yes"}

_HELP_TAIL = """\
Options of all commands:
  -q, --quiet               print only errors and warnings
  -v, --verbose             log more on stderr; -vv logs every request
  --debug                   show the traceback of an error
  -h, --help                show the options of a command

Options of all commands that connect to a broker:
  -b, --brokers HOST:PORT   brokers to connect to (LAKELOG_BROKERS; default
                            127.0.0.1:9092)
  --timeout 10s             how long to wait for a response

lakelog COMMAND --help shows the options of a command.

First steps (run the first command in its own terminal):
  lakelog dev
  lakelog topic create demo --partitions 3
  echo hello | lakelog produce demo
  lakelog consume demo -e
"""


def main() -> None:
    """Run the command line of this process and exit with its status."""
    prepare_streams()
    if "--debug" not in sys.argv:
        sys.excepthook = _report_uncaught
    status = run(sys.argv[1:])
    sys.stdout.flush()
    sys.exit(status)


def run(argv: list[str]) -> int:
    """Run a command line; return its exit status. Exceptions without a report are raised."""
    try:
        status = _dispatch(argv)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        _abandon_stdout()
        return 0
    except KeyboardInterrupt:
        return _EXIT_INTERRUPTED
    except (CliError, KafkaError, ValueError, OSError) as error:
        if "--debug" in argv:
            raise
        return _fail(error)


def _dispatch(argv: list[str]) -> int:
    leading, rest = split_leading(argv)
    if not rest or rest[0] in ("--help", "-h", "help"):
        sys.stdout.write(_help())
        return 0
    if rest[0] in ("--version", "version"):
        sys.stdout.write(f"lakelog {__version__}\n")
        return 0
    if rest[0] not in COMMANDS:
        kind = "option" if rest[0].startswith("-") else "command"
        hint = suggestion(rest[0], COMMANDS) or "run lakelog --help to list the commands"
        raise CliError("LL0902", f"unknown {kind} '{rest[0]}'", hint)
    return _run_noun(rest[0], _append(rest[1:], leading))


def _run_noun(name: str, tokens: list[str]) -> int:
    from lakelog.cli.stored_help import wanted_page

    page = wanted_page(name, tokens)
    if page is not None:
        sys.stdout.write(page)
        return 0
    if name == "serve":
        from lakelog.cli.broker_start import parse_plainly, run_broker

        plain = parse_plainly(tokens)
        if plain is not None:
            return run_broker(plain)
    from cyclopts.exceptions import CycloptsError

    app = import_module(f"lakelog.cli.commands.{name}").app
    try:
        command, bound, _ = app.parse_args(tokens, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        message = " ".join(str(error).split())
        command = " ".join([name, *(error.command_chain or ())])
        raise CliError("LL0902", message, f"lakelog {command} --help") from error
    if name not in _BROKERS:
        _log_client(
            max((getattr(value, "verbose", 0) for value in bound.arguments.values()), default=0)
        )
    result = command(*bound.args, **bound.kwargs)
    return result if isinstance(result, int) else 0


def _log_client(verbose: int) -> None:
    """Log the client to stderr: connections and retries, and with -vv each request."""
    if verbose:
        import logging

        from lakelog.cli.log_lines import start_logging

        start_logging(logging.DEBUG if verbose > 1 else logging.INFO, "text")


def split_leading(argv: list[str]) -> tuple[list[str], list[str]]:
    """Return the common options before the noun, and the rest."""
    at = 0
    while at < len(argv):
        name, _, value = argv[at].partition("=")
        if name in _LEADING_VALUES and not value:
            at += 2
        elif name in _LEADING_VALUES or argv[at] in _LEADING_FLAGS:
            at += 1
        else:
            break
    return argv[:at], argv[at:]


def _append(tokens: list[str], options: list[str]) -> list[str]:
    end = tokens.index("--") if "--" in tokens else len(tokens)
    return tokens[:end] + options + tokens[end:]


def _help() -> str:
    lines = [f"lakelog {__version__}: a Kafka-protocol commit log", ""]
    lines += ["Usage: lakelog COMMAND [OPTIONS]", "", "Commands:"]
    lines += [f"  {name:<10}{summary}" for name, summary in COMMANDS.items()]
    return "\n".join([*lines, "", _HELP_TAIL])


def _fail(error: BaseException) -> int:
    explained = explain_exception(error)
    _flush_quietly()
    color = sys.stderr.isatty() and "NO_COLOR" not in os.environ
    report(explained, sys.stderr, color=color)
    return int(explained.entry.exit)


def _report_uncaught(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Report an uncaught exception in one line, or with --debug with its traceback."""
    _fail(error)


def _flush_quietly() -> None:
    try:
        sys.stdout.flush()
    except (BrokenPipeError, CliError):
        _abandon_stdout()


def _abandon_stdout() -> None:
    """Discard the interpreter's flush at exit, because stdout cannot be written."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
