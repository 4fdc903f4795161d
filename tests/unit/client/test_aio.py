"""Transactions of an event loop; tests/clients/test_transactions.py has them on a broker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from lakelog.base.errors import ErrorCode
from lakelog.client.aio import AsyncConsumer, AsyncProducer, AsyncTransactionalProducer, CallThread
from lakelog.client.consumer.fetcher import FetchLimits
from lakelog.client.errors import ClientError, NotWrittenError
from lakelog.protocol.fetch import FetchRequest, FetchResponse
from lakelog.protocol.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from lakelog.records.builder import BatchBuilder
from scripted_broker import ScriptedBroker, records_of


def test_calls_run_one_after_the_other_also_after_a_cancellation() -> None:
    started, may_end = threading.Event(), threading.Event()
    order: list[str] = []

    def slow() -> None:
        started.set()
        may_end.wait(60)
        order.append("slow")

    async def main() -> None:
        thread = CallThread("test")
        task = asyncio.create_task(thread.run(slow))
        await asyncio.to_thread(started.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        following = thread.submit(lambda: order.append(threading.current_thread().name))
        may_end.set()
        await following
        thread.close()

    asyncio.run(main())
    assert order == ["slow", "test_0"]


def test_errors_of_a_call_are_raised() -> None:
    async def main() -> None:
        thread = CallThread("test")
        with pytest.raises(ZeroDivisionError):
            await thread.run(lambda: 1 // 0)
        thread.close()

    asyncio.run(main())


def test_the_last_call_is_made_once_and_ends_the_thread_also_if_it_fails() -> None:
    calls: list[str] = []

    def last() -> None:
        calls.append("last")
        raise ValueError("closing")

    async def main() -> None:
        thread = CallThread("test")
        with pytest.raises(ValueError, match="closing"):
            await thread.finish(last)
        await thread.finish(last)
        with pytest.raises(RuntimeError):
            thread.submit(last)

    asyncio.run(main())
    assert calls == ["last"]


KEY = ("orders", 0)


def log_of(request: FetchRequest) -> FetchResponse:
    """Return batches of three records without end."""
    base = request.topics[0].partitions[0].fetch_offset // 3 * 3
    builder = BatchBuilder()
    for number in range(3):
        builder.append(number, None, b"%d" % (base + number))
    return records_of(request, bytes(builder.build(base_offset=base)), base + 100)


@pytest.fixture(autouse=True)
def log(broker: ScriptedBroker) -> Iterator[None]:
    broker.on(FetchRequest, log_of)
    yield


def consumer_of(broker: ScriptedBroker) -> AsyncConsumer:
    return AsyncConsumer(broker.address, limits=FetchLimits(max_wait_ms=1), timeout_s=10.0)


def test_records_and_columns(broker: ScriptedBroker) -> None:
    async def main() -> None:
        async with consumer_of(broker) as consumer:
            await consumer.assign([KEY])
            await consumer.seek(KEY, 4)
            assert [each.offset for each in await consumer.poll(60.0)] == [4, 5]
            table = await consumer.poll_arrow(60.0, columns=["offset", "value"])
            assert table["offset"].to_pylist() == [6, 7, 8]
            frame = await consumer.poll_pandas(60.0, columns=["value"])
            assert frame["value"].to_list() == [b"9", b"10", b"11"]
            assert await consumer.position(KEY) == 12
            assert await consumer.assignment() == {KEY}
            await consumer.unsubscribe()
            assert await consumer.assignment() == frozenset()
        await consumer.close()

    asyncio.run(main())


@pytest.mark.parametrize("method", ["poll", "poll_arrow"])
def test_a_cancelled_poll_loses_no_records(broker: ScriptedBroker, method: str) -> None:
    async def main() -> None:
        async with consumer_of(broker) as consumer:
            await consumer.assign([KEY])
            await consumer.seek(KEY, 0)
            for _ in range(3):
                task = asyncio.create_task(getattr(consumer, method)(60.0))
                await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                # The thread has polled or is about to, and the next call returns its records.
                assert await consumer.position(KEY) == 0
            assert [each.offset for each in await consumer.poll(60.0)] == [0, 1, 2]

    asyncio.run(main())


def test_the_loop_runs_while_a_poll_waits(broker: ScriptedBroker) -> None:
    broker.on(FetchRequest, lambda request: records_of(request, b"", 0))

    async def main() -> int:
        turns = 0
        async with consumer_of(broker) as consumer:
            await consumer.assign([KEY])
            await consumer.seek(KEY, 0)
            waiting = asyncio.create_task(consumer.poll(0.3))
            while not waiting.done():
                await asyncio.sleep(0.001)
                turns += 1
            assert await waiting == []
        return turns

    assert asyncio.run(main()) > 3


def test_an_error_in_the_block_is_raised_and_the_consumer_is_closed(broker: ScriptedBroker) -> None:
    async def main() -> None:
        async with consumer_of(broker):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(main())


def answer(request: ProduceRequest, code: int = 0) -> ProduceResponse:
    topics = [
        TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[
                PartitionProduceResponse(index=row.index, base_offset=70, error_code=code)
                for row in topic.partition_data
            ],
        )
        for topic in request.topic_data
    ]
    return ProduceResponse(responses=topics)


def producer_of(broker: ScriptedBroker) -> AsyncProducer:
    broker.on(ProduceRequest, answer)
    return AsyncProducer(broker.address, acks=1, linger_ms=1)


def test_records_and_tables_return_their_places(broker: ScriptedBroker) -> None:
    async def main() -> None:
        async with producer_of(broker) as producer:
            sends = (producer.send("orders", b"%d" % n, partition=0) for n in range(5))
            written_parts = await asyncio.gather(*sends)
            assert {written.partition for written in written_parts} == {0}
            table = pa.table({"value": [b"a", b"b"], "partition": [1, 1]})
            [written] = await producer.send_table(table, "orders")
            assert (written.partition, written.offset, written.records) == (1, 70, 2)
            await producer.flush(60)
        await producer.close()

    asyncio.run(main())


def test_errors_are_raised_where_the_record_is_sent(broker: ScriptedBroker) -> None:
    async def main() -> None:
        async with producer_of(broker) as producer:
            with pytest.raises(NotWrittenError, match="row 0: partition 9"):
                await producer.send_table(pa.table({"value": [b""], "partition": [9]}), "orders")
            broker.on(ProduceRequest, lambda each: answer(each, ErrorCode.INVALID_RECORD))
            with pytest.raises(NotWrittenError, match="INVALID_RECORD"):
                await producer.send("orders", b"v")

    asyncio.run(main())


def test_a_task_that_was_cancelled_does_not_stop_its_records(broker: ScriptedBroker) -> None:
    async def main() -> None:
        async with producer_of(broker) as producer:
            await producer.send("orders", b"first")
            task = asyncio.create_task(producer.send("orders", b"second"))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await producer.flush(60)

    asyncio.run(main())
    assert len(broker.asked(ProduceRequest)) >= 2


class Twin:
    """Stands for the synchronous producer; `begin` waits for `gate`."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        self.abort_error: Exception | None = None

    def begin(self) -> None:
        self.gate.wait(60)
        self.calls.append("begin")

    def commit(self) -> None:
        self.calls.append("commit")

    def abort(self) -> None:
        self.calls.append("abort")
        if self.abort_error is not None:
            raise self.abort_error

    def send_offsets(self, group: str, offsets: Any, member: Any) -> None:
        self.calls.append(f"offsets of {group}")

    def __exit__(self, *error: object) -> None:
        self.calls.append("close")


def transactional_producer_of(
    twin: Any, monkeypatch: pytest.MonkeyPatch
) -> AsyncTransactionalProducer:
    path = "lakelog.client.aio.TransactionalProducer"
    monkeypatch.setattr(path, lambda *arguments, **settings: twin)
    return AsyncTransactionalProducer("localhost:1", "id")


def test_a_block_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    twin = Twin()

    async def main() -> None:
        async with transactional_producer_of(twin, monkeypatch) as producer, producer.transaction():
            await producer.send_offsets("copies", {("orders", 0): 5})

    asyncio.run(main())
    assert twin.calls == ["begin", "offsets of copies", "commit", "close"]


def test_a_block_that_raises_is_aborted_and_keeps_its_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    twin = Twin()
    twin.abort_error = ClientError(ErrorCode.NETWORK_EXCEPTION, "lost")

    async def main() -> None:
        async with transactional_producer_of(twin, monkeypatch) as producer, producer.transaction():
            raise KeyError("mine")

    with pytest.raises(KeyError) as raised:
        asyncio.run(main())
    assert twin.calls == ["begin", "abort", "close"]
    assert raised.value.__notes__ == ["aborting the transaction: NETWORK_EXCEPTION: lost"]


def test_a_cancelled_task_aborts_its_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    twin = Twin()

    async def main() -> None:
        async with transactional_producer_of(twin, monkeypatch) as producer:
            inside = asyncio.Event()

            async def work() -> None:
                async with producer.transaction():
                    inside.set()
                    await asyncio.sleep(60)

            task = asyncio.create_task(work())
            await inside.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    assert twin.calls == ["begin", "abort", "close"]


@pytest.mark.parametrize("fails", [False, True])
def test_a_task_that_is_cancelled_in_begin_leaves_no_open_transaction(
    monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """It ends as cancelled, whether or not the abort succeeds: a timeout waits for that."""
    twin = Twin()
    if fails:
        twin.abort_error = ClientError(ErrorCode.NETWORK_EXCEPTION, "lost")

    async def main() -> None:
        async with transactional_producer_of(twin, monkeypatch) as producer:
            twin.gate.clear()

            async def work() -> None:
                async with producer.transaction():
                    raise AssertionError

            task = asyncio.create_task(work())
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.sleep(0)
            twin.gate.set()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    assert twin.calls == ["begin", "abort", "close"]
