from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest

from lakelog.base.errors import ErrorCode
from lakelog.client.aio import AsyncProducer
from lakelog.client.errors import NotWrittenError
from lakelog.protocol.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from scripted_broker import ScriptedBroker


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
            places = await asyncio.gather(*sends)
            assert {place.partition for place in places} == {0}
            table = pa.table({"value": [b"a", b"b"], "partition": [1, 1]})
            [place] = await producer.send_table(table, "orders")
            assert (place.partition, place.offset, place.records) == (1, 70, 2)
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
