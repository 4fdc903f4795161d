"""The budget of time of one iteration of the event loop.

A loop iteration serves every socket that is ready and every callback that is due, so work that
thousands of clients cause at once would keep the next client waiting for all of it. Each kind of
such work is a part of a loop iteration: it does what fits into its allowance (`PART_S`, or a number
of bytes), at least one piece, and leaves the rest to later loop iterations. The parts run in one
callback, in the order in which they were added, before any socket is read. Nothing is scheduled
while there is no work.
"""

from __future__ import annotations

from collections.abc import Callable

from lakelog.runtime.api import Clock, Tasks

PART_S = 0.002
"""Seconds of a loop iteration for each part; a part begins no further piece after them."""


class LoopIterations:
    """The turns of one event loop, and the parts that share them."""

    def __init__(self, clock: Clock, tasks: Tasks) -> None:
        self._clock = clock
        self._tasks = tasks
        self._parts: list[Callable[[], object]] = []
        self.is_due = False
        """Whether `next_iteration` is scheduled."""

    def add(self, part: Callable[[], object]) -> None:
        """Call `part` in every loop iteration that was asked for, after the parts added before."""
        self._parts.append(part)

    def want(self) -> None:
        """Schedule another loop iteration; a part that leaves work calls this before it returns."""
        if not self.is_due:
            self.is_due = True
            self._tasks.call_soon(self.next_iteration)

    def next_iteration(self) -> None:
        """Run all parts. If one fails, the parts after it run in the next loop iteration."""
        self.is_due = False
        try:
            # In a fixed order, and each with an allowance of its own: the time that one part leaves
            # is not given to another, so the length of a loop iteration stays bounded by their sum.
            for part in self._parts:
                part()
        except BaseException:
            self.want()
            raise

    def run_some(self, pieces: int, piece: Callable[[], bool]) -> None:
        """Call `piece` until it returns False, or `PART_S` have passed; `pieces` times at most.

        A single piece is not timed.
        """
        if pieces <= 1:
            if pieces:
                piece()
            return
        until = self._clock.monotonic() + PART_S
        for _ in range(pieces):
            if not piece() or self._clock.monotonic() >= until:
                return
