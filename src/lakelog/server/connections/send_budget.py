"""Shares each iteration of the event loop among connections that send much.

A socket takes up to megabytes at once, so a thousand slow readers of large fetches would hold the
loop for seconds whenever their sockets have capacity. All connections together send
`ITERATION_BYTES` in a loop iteration, or little more. Connections that come too late wait here, in
the order of coming. Responses up to `SMALL` are exempt: they cost less than waiting, and a client
that gets only such responses never waits for the readers of large ones
(`test_a_small_response_does_not_wait_for_large_ones`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from lakelog.runtime.loop_iterations import LoopIterations

ITERATION_BYTES = 2 * 1024 * 1024
"""About a millisecond of copying."""
SMALL = 32 * 1024
"""Bytes of unsent responses that a connection sends without a loop iteration, and that no loop
iteration counts."""


class SendBudget:
    """The bytes that all connections of a broker send in a loop iteration: a part of
    `LoopIterations`."""

    def __init__(self, iterations: LoopIterations) -> None:
        self._iterations = iterations
        iterations.add(self._run)
        self._waiting: deque[Callable[[], object]] = deque()
        self.left = ITERATION_BYTES
        """Bytes that may be sent before the next loop iteration."""

    def spend(self, size: int) -> None:
        """Count `size` bytes sent by a connection.

        The next loop iteration is scheduled only when half is spent, so that it costs a single
        reader hardly anything. The bytes spent before that may have been spent in earlier loop
        iterations.
        """
        self.left -= size
        if self.left < ITERATION_BYTES // 2:
            self._iterations.want()

    def wait(self, resume: Callable[[], object]) -> None:
        """Call `resume` once in a later loop iteration, in the order of calls.

        An exception of `resume` ends the loop iteration; the other connections wait for the next
        one.
        """
        self._waiting.append(resume)
        self._iterations.want()

    @property
    def waiting(self) -> int:
        """Connections."""
        return len(self._waiting)

    def _run(self) -> None:
        """Resume waiting connections, which precede sockets that have capacity only now."""
        self.left = ITERATION_BYTES
        try:
            for _ in range(len(self._waiting)):
                if self.left <= 0:
                    break
                self._waiting.popleft()()
        finally:
            if self._waiting:
                self._iterations.want()
