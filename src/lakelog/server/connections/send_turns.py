"""Shares each turn of the event loop among connections that send much.

A socket takes up to megabytes at once, so a thousand slow readers of large fetches would hold the
loop for seconds whenever their sockets have room. All connections together send `TURN_BYTES` in a
turn, or little more; connections that come too late wait here, in the order of coming. Responses up
to `SMALL` are exempt: they cost less than waiting.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from lakelog.runtime.api import Tasks

TURN_BYTES = 2 * 1024 * 1024
"""About a millisecond of copying."""
SMALL = 32 * 1024
"""Bytes; also the least that a connection sends in its turn."""


class SendTurns:
    """One for all connections of a broker."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._waiting: deque[Callable[[], object]] = deque()
        self._next_is_due = False
        self.left = TURN_BYTES
        """Bytes that may be sent before the next turn."""

    def spend(self, size: int) -> None:
        """A connection has sent so many bytes.

        The next turn is scheduled only when half is spent, so that it costs a single reader hardly
        anything. The bytes spent before that may have been spent in earlier turns.
        """
        self.left -= size
        if self.left < TURN_BYTES // 2:
            self._want_next()

    def wait(self, resume: Callable[[], object]) -> None:
        """Calls `resume` in a later turn, when it is its turn."""
        self._waiting.append(resume)
        self._want_next()

    @property
    def waiting(self) -> int:
        """Connections."""
        return len(self._waiting)

    def _want_next(self) -> None:
        if not self._next_is_due:
            self._next_is_due = True
            self._tasks.call_soon(self.next_turn)

    def next_turn(self) -> None:
        """Begin a turn: waiting connections precede sockets that have room only now."""
        self._next_is_due = False
        self.left = TURN_BYTES
        for _ in range(len(self._waiting)):
            if self.left < SMALL:
                break
            self._waiting.popleft()()
        if self._waiting:
            self._want_next()
