"""Confirmation of destructive commands, commands for several names, and signals as a flag."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from lakelog.base.errors import KafkaError
from lakelog.cli.catalog import ExitCode
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


_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(BaseException):
    """A signal arrived within `Stop.interrupting`.

    It is a `BaseException` so that no handler of errors retries after it.
    """


class Stop(threading.Event):
    """A flag that the first signal sets; `signal_number` is 0 until then."""

    def __init__(self) -> None:
        super().__init__()
        self.signal_number = 0
        self._is_interrupting = False

    @property
    def exit_status(self) -> int:
        """The exit status after a signal, by convention of shells; 0 without a signal."""
        return 128 + self.signal_number if self.signal_number else 0

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Raise `Interrupted` when a signal arrives within the block, also in blocking calls.

        The outcome of the interrupted call is unknown. A signal that came before the block raises
        at its start.
        """
        self._is_interrupting = True
        try:
            if self.is_set():
                raise Interrupted
            yield
        finally:
            self._is_interrupting = False

    def signalled(self, number: int) -> None:
        """Handle a signal. Python calls this in the main thread, between any two instructions."""
        if self.is_set():
            raise KeyboardInterrupt
        self.signal_number = number
        self.set()
        if self._is_interrupting:
            raise Interrupted


@contextmanager
def stopping() -> Iterator[Stop]:
    """Within the block, the first signal sets the flag and a second one interrupts at once."""
    stop = Stop()

    def on_signal(number: int, frame: FrameType | None) -> None:
        stop.signalled(number)

    before = {number: signal.signal(number, on_signal) for number in _SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
