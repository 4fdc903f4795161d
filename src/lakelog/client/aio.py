"""The client for programs with an event loop of asyncio.

```python
async with AsyncConsumer("localhost:9092", group="billing") as consumer:
    await consumer.subscribe(["orders"])
    table = await consumer.poll_arrow()
```

Each object makes the calls of its synchronous twin in one thread of its own, in their order.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial, wraps
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from lakelog.client.committed import Committed, Membership
from lakelog.client.consumer.api import Consumer
from lakelog.client.consumer.positions import checked_partitions, checked_topics
from lakelog.client.errors import ClientError
from lakelog.client.offsets import TopicPartition
from lakelog.client.producer.api import Producer
from lakelog.client.producer.results import BatchResult, RecordMetadata, WrittenRows
from lakelog.client.producer.transactional import TransactionalProducer

_Result = TypeVar("_Result")
_Arguments = ParamSpec("_Arguments")
_Twin = TypeVar("_Twin", bound=Consumer | Producer)


class CallThread:
    """One thread, started at the first call. `name` is that of the thread."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._is_finished = False

    def submit(self, call: Callable[[], _Result]) -> asyncio.Future[_Result]:
        """Return the future result of `call`, which runs after all calls before it."""
        return asyncio.get_running_loop().run_in_executor(self._executor, call)

    async def run(self, call: Callable[[], _Result]) -> _Result:
        """Return the result of `call`, or raise its error.

        The call is made also if the task is cancelled meanwhile.
        """
        return await asyncio.shield(self.submit(call))

    async def finish(self, call: Callable[[], object]) -> None:
        """Make a last call, and end the thread; later times have no effect.

        Raises the error of `call`.
        """
        if self._is_finished:
            return
        self._is_finished = True
        try:
            await self.run(call)
        finally:
            self.close()

    def close(self) -> None:
        """End the thread after the calls that were submitted."""
        self._executor.shutdown(wait=False)


class _Threaded(Generic[_Twin]):
    """Calls the methods of `twin` in a thread; as a context manager, it closes the twin."""

    def __init__(self, twin: _Twin, name: str) -> None:
        self._twin = twin
        self._thread = CallThread(name)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *details: Any) -> None:
        await self._thread.finish(self._prepared(partial(self._twin.__exit__, *details)))

    async def _run(self, call: Callable[[], _Result]) -> _Result:
        return await self._thread.run(self._prepared(call))

    def _prepared(self, call: Callable[[], _Result]) -> Callable[[], _Result]:
        """Return the call as the thread makes it."""
        return call


def _awaited(
    method: Callable[Concatenate[Any, _Arguments], _Result], run: str = "_run"
) -> Callable[Concatenate[Any, _Arguments], Coroutine[Any, Any, _Result]]:
    """Return a method that has the twin call its `method`; `run` names the way."""

    @wraps(method)
    async def call(
        self: _Threaded[Any], /, *arguments: _Arguments.args, **settings: _Arguments.kwargs
    ) -> _Result:
        of_twin = partial(getattr(self._twin, method.__name__), *arguments, **settings)
        result: _Result = await getattr(self, run)(of_twin)
        return result

    return call


_Places = dict[TopicPartition, tuple[int | None, int]]


class _Rewindable(Consumer):
    """A consumer whose last poll can be undone."""

    places: _Places

    def noting_places(self, poll: Callable[[], _Result]) -> _Result:
        """Note offset and leader epoch of each partition, then return the result of `poll`."""
        self.places = {
            key: (position.offset, position.epoch) for key, position in self._positions.items()
        }
        return poll()

    def rewind(self) -> None:
        """Return to the noted places.

        Partitions that were assigned since then begin at their committed offsets again.
        """
        for key, position in self._positions.items():
            position.seek(*self.places.get(key, (None, -1)))
        self._uncommitted.clear()


class AsyncConsumer(_Threaded[_Rewindable]):
    """`Consumer` for an event loop: each method waits without blocking the loop.

    settings: of `Consumer`. Methods have the arguments and errors of the methods of `Consumer`. If
    the task of a poll is cancelled, its records are not lost: the next poll returns them. Raises
    the errors of `Consumer`.
    """

    def __init__(self, bootstrap: str, **settings: Any) -> None:
        super().__init__(_Rewindable(bootstrap, **settings), "lakelog-consumer")
        self._is_cancelled = False

    async def subscribe(self, topics: Iterable[str], **settings: Any) -> None:
        """Same as `Consumer.subscribe`; `on_revoked` is called in the consumer's thread."""
        await self._run(partial(self._twin.subscribe, checked_topics(topics), **settings))

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Same as `Consumer.assign`."""
        await self._run(partial(self._twin.assign, checked_partitions(partitions)))

    async def membership(self) -> Membership:
        """Return `Consumer.membership`, for `AsyncTransactionalProducer.send_offsets`."""
        return await self._run(lambda: self._twin.membership)

    async def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Committed]:
        """Same as `Consumer.committed`."""
        return await self._run(partial(self._twin.committed, list(partitions)))

    async def assignment(self) -> frozenset[TopicPartition]:
        """Return `Consumer.assignment`."""
        return await self._run(lambda: self._twin.assignment)

    async def close(self) -> None:
        """Same as `Consumer.close`. May be called repeatedly."""
        await self._thread.finish(self._prepared(self._twin.close))

    async def _poll(self, poll: Callable[[], _Result]) -> _Result:
        try:
            return await self._run(partial(self._twin.noting_places, poll))
        except asyncio.CancelledError:
            # The thread still polls. Its next call comes after the end of this one.
            self._is_cancelled = True
            raise

    def _prepared(self, call: Callable[[], _Result]) -> Callable[[], _Result]:
        """Return the call, after the undoing of a cancelled poll if there was one."""
        undo, self._is_cancelled = self._is_cancelled, False

        def work() -> _Result:
            if undo:
                self._twin.rewind()
            return call()

        return work

    unsubscribe = _awaited(Consumer.unsubscribe)
    poll = _awaited(Consumer.poll, "_poll")
    poll_arrow = _awaited(Consumer.poll_arrow, "_poll")
    poll_pandas = _awaited(Consumer.poll_pandas, "_poll")
    poll_polars = _awaited(Consumer.poll_polars, "_poll")
    seek = _awaited(Consumer.seek)
    seek_to_time = _awaited(Consumer.seek_to_time)
    position = _awaited(Consumer.position)
    commit = _awaited(Consumer.commit)


class SendingProducer(_Threaded[Producer]):
    """The methods that both producers for an event loop have. twin: belongs to this object."""

    def __init__(self, twin: Producer) -> None:
        super().__init__(twin, "lakelog-producer")

    async def send(
        self, topic: str, value: bytes | None, *arguments: Any, **fields: Any
    ) -> RecordMetadata:
        """Send a record as `Producer.send` does; return its place when it is acknowledged.

        Raises the errors of `Producer.send` and `Delivery.result`.
        """
        delivery = await self._run(partial(self._twin.send, topic, value, *arguments, **fields))
        await _completed(delivery.batches)
        return delivery.result(0)

    async def send_table(self, rows: Any, topic: str | None = None) -> list[WrittenRows]:
        """Send a table as `Producer.send_table` does; return when all rows are acknowledged.

        Raises the errors of `Producer.send_table` and `TableDelivery.result`.
        """
        delivery = await self._run(partial(self._twin.send_table, rows, topic))
        await _completed(delivery.batches)
        return delivery.result(0)

    async def close(self, timeout_s: float | None = None) -> None:
        """Same as `Producer.close`. May be called repeatedly."""
        await self._thread.finish(partial(self._twin.close, timeout_s))

    flush = _awaited(Producer.flush)


class AsyncProducer(SendingProducer):
    """`Producer` for an event loop: each method waits without blocking the loop.

    settings: of `Producer`. The records of several tasks that wait at the same time are sent
    together. A cancelled task does not stop its records. Raises the errors of `Producer`.
    """

    def __init__(self, bootstrap: str, **settings: Any) -> None:
        super().__init__(Producer(bootstrap, **settings))


async def _completed(batches: Iterable[BatchResult]) -> None:
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


class AsyncTransactionalProducer(SendingProducer):
    """`TransactionalProducer` for an event loop: each method waits without blocking the loop.

    Methods have the arguments and errors of the methods of `TransactionalProducer`. Several tasks
    may send into one transaction; one of them begins and ends it. A cancelled task does not stop
    its call, and later calls wait for it. If `abort` is called, tasks that still wait for their
    records get OPERATION_NOT_ATTEMPTED.
    """

    def __init__(self, bootstrap: str, transactional_id: str, **settings: Any) -> None:
        super().__init__(TransactionalProducer(bootstrap, transactional_id, **settings))

    begin = _awaited(TransactionalProducer.begin)
    commit = _awaited(TransactionalProducer.commit)
    abort = _awaited(TransactionalProducer.abort)
    _send_offsets = _awaited(TransactionalProducer.send_offsets)

    async def send_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int | Committed],
        member: Membership | None = None,
    ) -> None:
        """Same as `TransactionalProducer.send_offsets`; `member` is `AsyncConsumer.membership`."""
        await self._send_offsets(group, dict(offsets), member)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Begin a transaction; commit it after the block, or abort it if the block raises.

        A cancelled task aborts it, too, unless the commit has begun. Raises the errors of `begin`
        and `commit`.
        """
        try:
            await self.begin()
        except asyncio.CancelledError as error:
            # The call is made all the same, and would leave the transaction open.
            await self._abort_after(error)
            raise
        try:
            yield
        except BaseException as error:
            await self._abort_after(error)
            raise
        await self.commit()

    async def _abort_after(self, error: BaseException) -> None:
        """Abort; a failure is added to `error`, which the caller raises."""
        try:
            await self.abort()
        except ClientError as failure:
            error.add_note(f"aborting the transaction: {failure}")
