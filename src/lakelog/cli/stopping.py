"""^C and SIGTERM as a flag, for commands that finish their present step before they exit."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

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
