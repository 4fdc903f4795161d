"""Assigns producer ids from blocks that are reserved in the metadata log.

Reserved ids that are unused when the broker stops stay unused, so that no two producers, before and
after a restart, have the same id.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from lakelog.runtime.api import Tasks

ReserveBlock = Callable[[], Awaitable[range]]


class ProducerIds:
    def __init__(
        self, reserve: ReserveBlock, tasks: Tasks, forgotten_epochs_end: Callable[[], int]
    ) -> None:
        """forgotten_epochs_end: returns the producer id before which none is assigned any more."""
        self._reserve = reserve
        self._tasks = tasks
        self._forgotten_epochs_end = forgotten_epochs_end
        self._block = iter(range(0))
        self._waiting: deque[asyncio.Future[int]] = deque()

    async def next(self) -> int:
        """Return a new id. Raises `KafkaError` if no block can be reserved."""
        if not self._waiting:
            value = self._next_of_block()
            if value is not None:
                return value
        waiter: asyncio.Future[int] = self._tasks.future()
        self._waiting.append(waiter)
        if len(self._waiting) == 1:
            self._tasks.spawn(self._refill(), name="producer-ids")
        return await waiter

    def _next_of_block(self) -> int | None:
        end = self._forgotten_epochs_end()
        return next((value for value in self._block if value >= end), None)

    async def _refill(self) -> None:
        """Reserve one block for all waiting callers."""
        while self._waiting:
            try:
                self._block = iter(await self._reserve())
            except Exception as error:  # noqa: BLE001 - each waiter reports it
                while self._waiting:
                    _fail(self._waiting.popleft(), error)
                return
            while self._waiting and (value := self._next_of_block()) is not None:
                waiter = self._waiting.popleft()
                if not waiter.done():
                    waiter.set_result(value)


def _fail(waiter: asyncio.Future[int], error: Exception) -> None:
    if not waiter.done():
        waiter.set_exception(error)
