"""The producer for an event loop, without transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Self

from lakelog.client.aio.thread import CallThread
from lakelog.client.producer.api import Producer
from lakelog.client.producer.results import BatchResult, RecordMetadata, WrittenRows


class SendingProducer:
    """The methods that both producers for an event loop have. producer: belongs to this object."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._thread = CallThread("lakelog-producer")

    async def send(
        self, topic: str, value: bytes | None, *arguments: Any, **fields: Any
    ) -> RecordMetadata:
        """Send a record as `Producer.send` does; return its place when it is acknowledged.

        Raises the errors of `Producer.send` and `Delivery.result`.
        """
        call = partial(self._producer.send, topic, value, *arguments, **fields)
        delivery = await self._thread.run(call)
        await _settled(delivery.batches)
        return delivery.result(0)

    async def send_table(self, rows: Any, topic: str | None = None) -> list[WrittenRows]:
        """Send a table as `Producer.send_table` does; return when all rows are acknowledged.

        Raises the errors of `Producer.send_table` and `TableDelivery.result`.
        """
        delivery = await self._thread.run(partial(self._producer.send_table, rows, topic))
        await _settled(delivery.batches)
        return delivery.result(0)

    async def flush(self, timeout_s: float | None = None) -> None:
        """Same as `Producer.flush`."""
        await self._thread.run(partial(self._producer.flush, timeout_s))

    async def close(self, timeout_s: float | None = None) -> None:
        """Same as `Producer.close`. May be called repeatedly."""
        await self._thread.finish(partial(self._producer.close, timeout_s))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._thread.finish(partial(self._producer.__exit__, kind, error, trace))


class AsyncProducer(SendingProducer):
    """`Producer` for an event loop: each method waits without blocking the loop.

    settings: of `Producer`. The records of several tasks that wait at the same time are sent
    together. A cancelled task does not stop its records. Raises the errors of `Producer`.
    """

    def __init__(self, bootstrap: str, **settings: Any) -> None:
        super().__init__(Producer(bootstrap, **settings))


async def _settled(batches: Iterable[BatchResult]) -> None:
    """Return when all batches have a result or an error."""
    loop = asyncio.get_running_loop()
    for batch in batches:
        done = asyncio.Event()
        batch.when_done(partial(_set, loop, done))
        await done.wait()


def _set(loop: asyncio.AbstractEventLoop, done: asyncio.Event) -> None:
    # The loop may be closed: a cancelled task does not stop its records.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(done.set)
