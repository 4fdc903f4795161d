"""The seams of `lakelog.runtime.api` for one simulated process: clock, randomness, tasks."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from lakelog.runtime.api import Timer
from lakelog.testing.disk import DiskStopped
from lakelog.testing.simulation.loop import SimulatedLoop

T = TypeVar("T")

WALL_START_MS = 1_700_000_000_000


class SimulatedClock:
    """A host's: its wall clock may be wrong, and may jump; the monotonic one is the loop's."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self._skew_ms = 0
        self._leaps: list[tuple[float, int, int]] = []
        """When it leapt, and the skew before and after."""

    def wall_ms(self) -> int:
        return WALL_START_MS + self._skew_ms + int(self._loop.time() * 1000)

    def leap(self, by_ms: int) -> None:
        before, self._skew_ms = self._skew_ms, self._skew_ms + by_ms
        self._leaps.append((self._loop.time(), before, self._skew_ms))

    def spread_ms(self, since: float) -> float:
        """How far apart two times may be that were told since then, here or by a right clock."""
        now_ms, since_ms = self._loop.time() * 1000, since * 1000
        told = [since_ms, now_ms + self._skew_ms]
        skew_ms = 0
        for at, before, after in self._leaps:
            if at < since:
                skew_ms = after
            else:
                told += (at * 1000 + before, at * 1000 + after)
        told.append(since_ms + skew_ms)
        return max(told) - min(told)

    def monotonic(self) -> float:
        return self._loop.time()


class ChanceRandom:
    """A `Random` out of a stream of chance."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def bytes(self, size: int) -> bytes:
        return self._rng.randbytes(size)

    def below(self, end: int) -> int:
        return self._rng.randrange(end)


class SimulatedTasks:
    """`Tasks` whose threads do their work at once, at some moment within `delay_s_max`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, rng: random.Random) -> None:
        self._loop = loop
        self._rng = rng
        self.delay_s_max = 0.01

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        self._loop.call_soon(callback, *args)

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> Timer:
        return self._loop.call_later(delay_s, callback, *args)

    def spawn(self, coroutine: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        return self._loop.create_task(coroutine, name=name)

    def future(self) -> asyncio.Future[Any]:
        return self._loop.create_future()

    def offload(self, lane: str, work: Callable[[], T]) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self._loop.create_future()
        self._loop.call_later(self._delay_s(), self._work, future, work)
        return future

    def _work(self, future: asyncio.Future[T], work: Callable[[], T]) -> None:
        if future.cancelled():
            return
        try:
            result = work()
        except DiskStopped:
            raise
        except Exception as error:  # noqa: BLE001 - it belongs to whoever waits for the work
            self._loop.call_later(self._delay_s(), _fail, future, error)
        else:
            self._loop.call_later(self._delay_s(), _settle, future, result)

    def _delay_s(self) -> float:
        return self._rng.random() * self.delay_s_max


def _settle(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
