"""The entry point: imports the module of a noun, runs the command, and reports its exceptions."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING

from lakelog import __version__
from lakelog.base.errors import KafkaError
from lakelog.cli.declaration import HELP_FLAGS, Command, Noun, end_of_options, overview
from lakelog.cli.failures import CliError, explain_exception, report, suggestion
from lakelog.cli.options import CommandSession, Consent, Output
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
        hint = suggestion(rest[0], COMMANDS) or "run lakelog --help to list the commands"
        raise _unknown(rest[0], rest[0], hint)
    return _run_noun(rest[0], _append(rest[1:], leading))


def _run_noun(name: str, tokens: list[str]) -> int:
    noun = import_module(f"lakelog.cli.commands.{name}").app
    command, tokens = _command(noun, tokens)
    if command is None or set(HELP_FLAGS).intersection(tokens[: end_of_options(tokens)]):
        sys.stdout.write(command.page() if command else noun.page(COMMANDS[name]))
        return 0
    arguments = command.parse(tokens)
    if name not in _BROKERS:
        _log_client(max(getattr(value, "verbose", 0) for value in arguments.values()))
    result = command.function(**arguments)
    return result if isinstance(result, int) else 0


def _command(noun: Noun, tokens: list[str]) -> tuple[Command | None, list[str]]:
    """Return the command and its arguments; `None` for the help page of the noun."""
    if "" in noun.commands:
        return noun.commands[""], tokens
    leading, rest = split_leading(tokens)
    if not rest or rest[0] in HELP_FLAGS:
        return None, []
    if rest[0] not in noun.commands:
        hint = suggestion(rest[0], noun.commands) or f"lakelog {noun.name} --help"
        raise _unknown(rest[0], f"{noun.name} {rest[0]}", hint)
    return noun.commands[rest[0]], _append(rest[1:], leading)


def _unknown(word: str, command: str, hint: str) -> CliError:
    is_option = word.startswith("-")
    text = f"unknown option '{word}'" if is_option else f"unknown command '{command}'"
    return CliError("LL0902", text, hint)


def _log_client(verbose: int) -> None:
    """Log the client to stderr: connections and retries, and with -vv each request."""
    if verbose:
        import logging

        from lakelog.cli.log_lines import start_logging

        start_logging(logging.DEBUG if verbose > 1 else logging.INFO, "text")


def split_leading(argv: list[str]) -> tuple[list[str], list[str]]:
    """Return the common options before a noun or a command, and the rest."""
    if not argv or not argv[0].startswith("-"):
        return [], argv
    common = Command("", run)
    for options in (CommandSession, Output, Consent):
        common.add_group(options.__name__, options)
    takes_value = {
        name: argument.nargs != 0
        for argument in common.arguments()
        for name in argument.option_strings
    }
    takes_value["-vv"] = False
    at = 0
    while at < len(argv):
        name, equals, _ = argv[at].partition("=")
        if name not in takes_value:
            break
        at += 2 if takes_value[name] and not equals else 1
    return argv[:at], argv[at:]


def _append(tokens: list[str], options: list[str]) -> list[str]:
    end = end_of_options(tokens)
    return tokens[:end] + options + tokens[end:]


def _help() -> str:
    summary = f"lakelog {__version__}: a Kafka-protocol commit log"
    return f"{overview('lakelog COMMAND [OPTIONS]', summary, COMMANDS)}\n{_HELP_TAIL}"


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
