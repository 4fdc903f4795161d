from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from lakelog.client.aio import AsyncConsumer
from lakelog.client.consumer.fetcher import FetchLimits
from lakelog.protocol.fetch import FetchRequest, FetchResponse
from lakelog.records.builder import BatchBuilder
from scripted_broker import ScriptedBroker, records_of

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
