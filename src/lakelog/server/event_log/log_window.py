"""A bound on the log lines that peers can cause."""

from __future__ import annotations

from lakelog.runtime.api import Clock

WINDOW_S = 60.0
LINES_MAX = 100
"""Lines of a kind in one window; the next line has the number of those left out."""

_CHARS_MAX = 1000
"""Characters of a peer's text in one line; a string of the protocol has up to 32,767 bytes."""


class LogWindow:
    """Windows of `WINDOW_S` seconds, each of which begins with its first line."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begin = 0.0
        self._lines = self._left_out = 0

    def admit(self) -> int | None:
        """Return the number of lines left out before this one, or None to leave this one out."""
        now = self._clock.monotonic()
        if not self._lines or now - self._begin >= WINDOW_S:
            self._begin, self._lines = now, 0
        if self._lines >= LINES_MAX:
            self._left_out += 1
            return None
        self._lines += 1
        left_out, self._left_out = self._left_out, 0
        return left_out


def one_line(text: object) -> str:
    """Return text that a peer may have sent with control characters escaped, for a log line.

    It is cut to `_CHARS_MAX` characters, and escaped line breaks cannot forge another line.
    """
    text = str(text)
    shown = text if len(text) <= _CHARS_MAX else f"{text[:_CHARS_MAX]}..."
    return "".join(char if char.isprintable() else _escaped(char) for char in shown)


def left_out_text(left_out: int) -> str:
    """Return the end of a line with the number of lines left out before it, empty for 0."""
    return f" (and {left_out} others before it, without a line)" if left_out else ""


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
