"""Steps of the demo that need no Spark session: its topics and the records that it produces."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from lakelog.client.errors import NotWrittenError
from lakelog.protocol.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from lakelog.protocol.transactions import InitProducerIdRequest, InitProducerIdResponse
from lakelog.records.batch import read_header
from lakelog.records.record import decode_records
from lakelog.spark.demo import pipeline
from lakelog.spark.demo.pipeline import LINES_TOPIC, Demo
from lakelog.spark.demo.report import Tally
from scripted_broker import ScriptedBroker

LINES = [b"10.0.0.%d - line %d" % (number % 7, number) for number in range(25)]


def response(request: ProduceRequest, error: int = 0) -> ProduceResponse:
    """Return the response with one error code for all partitions."""
    topics = [
        TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[
                PartitionProduceResponse(index=row.index, error_code=error, base_offset=0)
                for row in topic.partition_data
            ],
        )
        for topic in request.topic_data
    ]
    return ProduceResponse(responses=topics)


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker({LINES_TOPIC: 3}) as broker:
        broker.on(InitProducerIdRequest, InitProducerIdResponse(producer_id=9, producer_epoch=0))
        broker.on(ProduceRequest, response)
        yield broker


@pytest.fixture
def demo(broker: ScriptedBroker, tmp_path: Path) -> Demo:
    return Demo(broker.address, tmp_path, cast("Any", None))


def arrived(broker: ScriptedBroker) -> dict[int, Tally]:
    """Return the number and the digest of the records of each partition."""
    found: dict[int, Tally] = {}
    for request in broker.asked(ProduceRequest):
        for row in request.topic_data[0].partition_data:
            for record in decode_records(row.records, read_header(row.records), 1 << 20):
                found.setdefault(row.index, Tally()).add(record.value)
    return found


def summary(tallies: dict[int, Tally]) -> dict[int, tuple[int, str]]:
    return {partition: (tally.count, tally.digest) for partition, tally in tallies.items()}


def test_each_line_is_counted_in_the_partition_that_has_it(
    demo: Demo, broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over several windows and two calls: the proof compares these digests with the readers'."""
    monkeypatch.setattr(pipeline, "_WINDOW", 4)
    lines = iter(LINES)

    assert demo.produce(next(lines) for _ in range(10)) == 10
    assert demo.produce(lines) == 15

    assert summary(demo.produced) == summary(arrived(broker))
    assert sum(tally.count for tally in demo.produced.values()) == len(LINES)


def test_no_lines_make_no_request(demo: Demo, broker: ScriptedBroker) -> None:
    assert demo.produce(iter([])) == 0
    assert broker.asked(ProduceRequest) == []


def test_a_line_that_the_broker_rejects_is_not_counted(demo: Demo, broker: ScriptedBroker) -> None:
    too_large = 10
    broker.on(ProduceRequest, lambda request: response(request, too_large))
    with pytest.raises(NotWrittenError):
        demo.produce(iter(LINES[:1]))
    assert demo.produced == {}
