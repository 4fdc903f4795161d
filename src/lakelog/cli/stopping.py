"""^C and SIGTERM as a flag, for commands that end what they are doing before they go."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop(threading.Event):
    """Set by the first signal; `signal_number` is 0 until then."""

    def __init__(self) -> None:
        super().__init__()
        self.signal_number = 0

    @property
    def exit_status(self) -> int:
        """What a shell expects of a program that ended by this signal; 0 without one."""
        return 128 + self.signal_number if self.signal_number else 0


@contextmanager
def stopping() -> Iterator[Stop]:
    """While inside, the first signal sets the flag and a second one interrupts at once."""
    stop = Stop()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.signal_number = number
        stop.set()

    before = {number: signal.signal(number, on_signal) for number in _SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
