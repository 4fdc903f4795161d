"""Randomness and tasks of one simulated process, in the form of `lakelog.runtime.api`."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from doubles.disk import DiskStopped
from lakelog.runtime.api import Timer

T = TypeVar("T")


class StreamRandom:
    """A `Random` that draws from a stream of the simulator."""

    def __init__(self, stream: random.Random) -> None:
        self._stream = stream

    def bytes(self, size: int) -> bytes:
        return self._stream.randbytes(size)

    def below(self, end: int) -> int:
        return self._stream.randrange(end)


class SimulatedTasks:
    """`Tasks` without threads: offloaded work runs in the loop.

    It starts up to `delay_s_max` seconds later, takes no virtual time, and its result arrives up to
    `delay_s_max` seconds after that.
    """

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
        # Two delays, before and after the work: other callbacks run between request, work and
        # result.
        self._loop.call_later(self._delay_s(), self._work, future, work)
        return future

    def _work(self, future: asyncio.Future[T], work: Callable[[], T]) -> None:
        if future.cancelled():
            return
        try:
            result = work()
        # The process died in this step: nothing may observe a result.
        except DiskStopped:
            raise
        except Exception as error:  # noqa: BLE001 - the caller that awaits the work handles it
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


async def together(*works: Coroutine[Any, Any, Any]) -> None:
    """Do all `works` at the same time; a single coroutine gets no task of its own."""
    if len(works) == 1:
        await works[0]
    else:
        await asyncio.gather(*works)
