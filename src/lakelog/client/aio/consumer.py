"""The consumer for an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from lakelog.client.aio.thread import CallThread
from lakelog.client.committed import Committed, Membership
from lakelog.client.consumer.api import Consumer
from lakelog.client.consumer.positions import ConsumerRecord
from lakelog.client.consumer.types import checked_partitions, checked_topics
from lakelog.client.offsets import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

_Result = TypeVar("_Result")
_Places = dict[TopicPartition, tuple[int | None, int]]


class _Rewindable(Consumer):
    """A consumer whose last poll can be undone."""

    places: _Places

    def noting_places(self, poll: Callable[[], _Result]) -> _Result:
        """Note offset and leader epoch of each partition, then return the result of `poll`."""
        self.places = {key: (each.offset, each.epoch) for key, each in self._positions.items()}
        return poll()

    def rewind(self) -> None:
        """Return to the noted places.

        Partitions that were assigned since then begin at their committed offsets again.
        """
        for key, position in self._positions.items():
            position.seek(*self.places.get(key, (None, -1)))
        self._uncommitted.clear()


class AsyncConsumer:
    """`Consumer` for an event loop: each method waits without blocking the loop.

    settings: of `Consumer`. Methods have the arguments and errors of the methods of `Consumer`. If
    the task of a poll is cancelled, its records are not lost: the next poll returns them. Raises
    the errors of `Consumer`.
    """

    def __init__(self, bootstrap: str, **settings: Any) -> None:
        self._consumer = _Rewindable(bootstrap, **settings)
        self._thread = CallThread("lakelog-consumer")
        self._is_cancelled = False

    async def subscribe(self, topics: Iterable[str], **settings: Any) -> None:
        """Same as `Consumer.subscribe`; `on_revoked` is called in the consumer's thread."""
        await self._run(partial(self._consumer.subscribe, checked_topics(topics), **settings))

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Same as `Consumer.assign`."""
        await self._run(partial(self._consumer.assign, checked_partitions(partitions)))

    async def unsubscribe(self) -> None:
        """Same as `Consumer.unsubscribe`."""
        await self._run(self._consumer.unsubscribe)

    async def membership(self) -> Membership:
        """Return `Consumer.membership`, for `AsyncTransactionalProducer.send_offsets`."""
        return await self._run(lambda: self._consumer.membership)

    async def poll(self, timeout_s: float = 1.0, **settings: Any) -> list[ConsumerRecord]:
        """Same as `Consumer.poll`."""
        return await self._poll(partial(self._consumer.poll, timeout_s, **settings))

    async def poll_arrow(self, timeout_s: float = 1.0, **settings: Any) -> pa.Table:
        """Same as `Consumer.poll_arrow`."""
        return await self._poll(partial(self._consumer.poll_arrow, timeout_s, **settings))

    async def poll_pandas(self, timeout_s: float = 1.0, **settings: Any) -> Any:
        """Same as `Consumer.poll_pandas`."""
        return await self._poll(partial(self._consumer.poll_pandas, timeout_s, **settings))

    async def poll_polars(self, timeout_s: float = 1.0, **settings: Any) -> Any:
        """Same as `Consumer.poll_polars`."""
        return await self._poll(partial(self._consumer.poll_polars, timeout_s, **settings))

    async def seek(self, partition: TopicPartition, offset: int) -> None:
        """Same as `Consumer.seek`."""
        await self._run(partial(self._consumer.seek, partition, offset))

    async def seek_to_time(self, partition: TopicPartition, timestamp_ms: int) -> int:
        """Same as `Consumer.seek_to_time`."""
        return await self._run(partial(self._consumer.seek_to_time, partition, timestamp_ms))

    async def position(self, partition: TopicPartition) -> int:
        """Same as `Consumer.position`."""
        return await self._run(partial(self._consumer.position, partition))

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Same as `Consumer.commit`."""
        await self._run(partial(self._consumer.commit, offsets))

    async def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Committed]:
        """Same as `Consumer.committed`."""
        return await self._run(partial(self._consumer.committed, list(partitions)))

    async def assignment(self) -> frozenset[TopicPartition]:
        """Return `Consumer.assignment`."""
        return await self._run(lambda: self._consumer.assignment)

    async def close(self) -> None:
        """Same as `Consumer.close`. May be called repeatedly."""
        await self._thread.finish(self._undoing(self._consumer.close))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._thread.finish(
            self._undoing(partial(self._consumer.__exit__, kind, error, trace))
        )

    async def _poll(self, poll: Callable[[], _Result]) -> _Result:
        try:
            return await self._run(partial(self._consumer.noting_places, poll))
        except asyncio.CancelledError:
            # The thread still polls. Its next call comes after the end of this one.
            self._is_cancelled = True
            raise

    async def _run(self, call: Callable[[], _Result]) -> _Result:
        return await self._thread.run(self._undoing(call))

    def _undoing(self, call: Callable[[], _Result]) -> Callable[[], _Result]:
        """Return the call, after the undoing of a cancelled poll if there was one."""
        undo, self._is_cancelled = self._is_cancelled, False

        def work() -> _Result:
            if undo:
                self._consumer.rewind()
            return call()

        return work
