"""Shares each turn of the event loop among connections that send much.

A socket takes up to megabytes at once, so a thousand slow readers of large fetches would hold the
loop for seconds whenever their sockets have room. All connections together send `TURN_BYTES` in a
turn, or little more. Connections that come too late wait here, in the order of coming. Responses up
to `SMALL` are exempt: they cost less than waiting, and a client that gets only such responses never
waits for the readers of large ones (`test_a_small_response_does_not_wait_for_large_ones`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from lakelog.runtime.turns import LoopTurns

TURN_BYTES = 2 * 1024 * 1024
"""About a millisecond of copying."""
SMALL = 32 * 1024
"""Bytes of unsent responses that a connection sends without a turn, and that no turn counts."""


class SendTurns:
    """The bytes that all connections of a broker send in a turn: a part of `LoopTurns`."""

    def __init__(self, turns: LoopTurns) -> None:
        self._turns = turns
        turns.add(self._run)
        self._waiting: deque[Callable[[], object]] = deque()
        self.left = TURN_BYTES
        """Bytes that may be sent before the next turn."""

    def spend(self, size: int) -> None:
        """Count `size` bytes sent by a connection.

        The next turn is scheduled only when half is spent, so that it costs a single reader hardly
        anything. The bytes spent before that may have been spent in earlier turns.
        """
        self.left -= size
        if self.left < TURN_BYTES // 2:
            self._turns.want()

    def wait(self, resume: Callable[[], object]) -> None:
        """Call `resume` once in a later turn, in the order of calls.

        An exception of `resume` ends the turn; the other connections wait for the next one.
        """
        self._waiting.append(resume)
        self._turns.want()

    @property
    def waiting(self) -> int:
        """Connections."""
        return len(self._waiting)

    def _run(self) -> None:
        """Resume waiting connections, which precede sockets that have room only now."""
        self.left = TURN_BYTES
        try:
            for _ in range(len(self._waiting)):
                if self.left <= 0:
                    break
                self._waiting.popleft()()
        finally:
            if self._waiting:
                self._turns.want()
