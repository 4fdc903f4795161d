"""Asks before something is destroyed, and does one thing to many names."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from lakelog.base.errors import KafkaError
from lakelog.cli.exit_code import ExitCode
from lakelog.cli.failures import CliError, explain_exception, report


def confirm(question: str, *, yes: bool) -> None:
    """Returns if the person agrees or said --yes; raises `CliError` LL0901 otherwise."""
    if yes:
        return
    if not sys.stdin.isatty():
        text = f"cannot ask whether to {question}: standard input is not a terminal"
        raise CliError("LL0901", text, "pass --yes to do it without asking")
    sys.stderr.write(f"{question}? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CliError("LL0901", f"did not {question}")


def for_each(names: Sequence[str], action: Callable[[str], None]) -> int:
    """The exit status of doing `action` to every name, whatever becomes of the others.

    The failure of an only name is raised; those of several are reported one by one.
    """
    failures = []
    for name in names:
        try:
            action(name)
        except (KafkaError, CliError) as error:
            if len(names) == 1:
                raise
            failures.append(explain_exception(error))
            report(failures[-1], sys.stderr, color=False)
    if not failures:
        return ExitCode.OK
    return failures[0].entry.exit if len(failures) == len(names) else ExitCode.PARTIAL
