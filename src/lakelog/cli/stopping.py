"""^C and SIGTERM as a flag, for commands that end what they are doing before they go."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(BaseException):
    """The signal came within `Stop.interrupting`. No handler of other errors retries after it."""


class Stop(threading.Event):
    """Set by the first signal; `signal_number` is 0 until then."""

    def __init__(self) -> None:
        super().__init__()
        self.signal_number = 0
        self._is_interrupting = False

    @property
    def exit_status(self) -> int:
        """What a shell expects of a program that ended by this signal; 0 without one."""
        return 128 + self.signal_number if self.signal_number else 0

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Inside, the signal raises `Interrupted`: what blocks ends, and its outcome is unknown.

        A signal that came before is raised on entering.
        """
        self._is_interrupting = True
        try:
            if self.is_set():
                raise Interrupted
            yield
        finally:
            self._is_interrupting = False

    def signalled(self, number: int) -> None:
        """Called in the main thread, between any two instructions of it."""
        if self.is_set():
            raise KeyboardInterrupt
        self.signal_number = number
        self.set()
        if self._is_interrupting:
            raise Interrupted


@contextmanager
def stopping() -> Iterator[Stop]:
    """While inside, the first signal sets the flag and a second one interrupts at once."""
    stop = Stop()

    def on_signal(number: int, frame: FrameType | None) -> None:
        stop.signalled(number)

    before = {number: signal.signal(number, on_signal) for number in _SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
