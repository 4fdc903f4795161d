"""Bounds the share of the event loop that long computations take, all of them together.

A long computation is cut into slices of about a millisecond. Slices run one at a time, and the loop
sleeps after them for as long as they took. Connections therefore keep at least half of the loop,
however many computations wait. The process really sleeps: threads that sync and check need the
interpreter as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from lakelog.runtime.api import Clock

T = TypeVar("T")
_PAUSE_S_MIN = 0.001
"""Shorter sleeps are put off: a selector rounds them up to a millisecond."""


class TimeSlices:
    """Turns of the loop, for slices. One object for a broker."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._turn = asyncio.Lock()
        self._owed_s = 0.0
        """Time that slices took and the loop has not slept for."""

    async def run(self, work: Callable[[], T]) -> T:
        """Run one slice when its turn comes; return the result of `work`, or raise its error."""
        async with self._turn:
            began = self._clock.monotonic()
            try:
                return work()
            finally:
                self._owed_s += self._clock.monotonic() - began
                # Within the lock: the pause is for all computations together, not for this one.
                await self._leave_loop()

    async def _leave_loop(self) -> None:
        pause_s = self._owed_s if self._owed_s >= _PAUSE_S_MIN else 0
        self._owed_s -= pause_s
        await asyncio.sleep(pause_s)
