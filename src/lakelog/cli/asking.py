"""Asks for confirmation of destructive commands, and applies a command to several names."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from lakelog.base.errors import KafkaError
from lakelog.cli.exit_code import ExitCode
from lakelog.cli.failures import CliError, explain_exception, report


def confirm(question: str, *, yes: bool) -> None:
    """Return if the user agrees or passed --yes; otherwise raise `CliError` LL0901."""
    if yes:
        return
    if not sys.stdin.isatty():
        text = f"cannot ask whether to {question}: standard input is not a terminal"
        raise CliError("LL0901", text, "pass --yes to skip the confirmation")
    sys.stderr.write(f"{question}? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CliError("LL0901", f"did not {question}")


def confirm_deletion(names: Sequence[str], contents: str, *, yes: bool) -> None:
    """Ask whether to delete `names` with all their `contents`, unless there are no names.

    Raises as `confirm`.
    """
    if names:
        what = ", ".join(f"'{name}'" for name in names)
        confirm(f"delete {what} with all {contents}", yes=yes)


def for_each(names: Sequence[str], action: Callable[[str], None]) -> int:
    """Apply `action` to every name, even if it fails for some; return the exit status.

    With a single name its error is raised; with several, errors are reported one by one.
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
