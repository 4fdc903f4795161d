"""Says which connections the broker closes and why, in a bounded number of lines.

A peer that is closed can be back at once, so without a bound a hostile one could fill the log.
"""

from __future__ import annotations

import logging

from lakelog.base.errors import ErrorCode
from lakelog.runtime.api import Clock

logger = logging.getLogger(__name__)

WINDOW_S = 60.0
LINES_MAX = 100
"""Lines of a kind in one window; the next line says how many there would have been."""


class ClosingLog:
    """One for all connections of a broker."""

    def __init__(self, clock: Clock) -> None:
        self._closings = _Window(clock)
        self._bugs = _Window(clock)

    def closing(self, peer: str, reason: object) -> None:
        """`reason` may hold what the peer has sent: it is one line of printable characters."""
        left_out = self._closings.admit()
        if left_out is None:
            return
        text = "".join(char if char.isprintable() else _escaped(char) for char in str(reason))
        if left_out:
            text += f" (and {left_out} others before it, without a line)"
        logger.warning("closing %s: %s", peer, text)

    def bug(self, api: str, peer: str, error: BaseException) -> None:
        """A handler failed with what is no answer."""
        if self._bugs.admit() is not None:
            code = ErrorCode.UNKNOWN_SERVER_ERROR.name
            logger.error("%s from %s failed with %s", api, peer, code, exc_info=error)


class _Window:
    """`LINES_MAX` lines from the first one on, for `WINDOW_S`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begin = 0.0
        self._lines = self._left_out = 0

    def admit(self) -> int | None:
        """How many lines were left out before this one; none if this one is, too."""
        now = self._clock.monotonic()
        if not self._lines or now - self._begin >= WINDOW_S:
            self._begin, self._lines = now, 0
        if self._lines >= LINES_MAX:
            self._left_out += 1
            return None
        self._lines += 1
        left_out, self._left_out = self._left_out, 0
        return left_out


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
