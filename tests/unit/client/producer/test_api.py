"""The producer's settings and limits, and batches of several records."""

from __future__ import annotations

from typing import Any

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.client.errors import NotWrittenError, PartitionNotFoundError, TopicNotFoundError
from lakelog.client.producer.api import Producer
from lakelog.protocol.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from lakelog.records.batch import read_header
from lakelog.records.record import decode_records
from scripted_broker import ScriptedBroker


def written(request: ProduceRequest) -> ProduceResponse:
    topics = [
        TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[
                PartitionProduceResponse(index=row.index, base_offset=70)
                for row in topic.partition_data
            ],
        )
        for topic in request.topic_data
    ]
    return ProduceResponse(responses=topics)


def producer_of(broker: ScriptedBroker, **settings: object) -> Producer:
    broker.on(ProduceRequest, written)
    return Producer(broker.address, **{"acks": 1, "linger_ms": 60_000, **settings})  # type: ignore[arg-type]


def values_of(broker: ScriptedBroker) -> list[list[bytes | None]]:
    """Return the values of each batch that has arrived."""
    found = []
    for request in broker.asked(ProduceRequest):
        for row in request.topic_data[0].partition_data:
            batch = row.records
            records = decode_records(batch, read_header(batch), 1 << 20)
            found.append([record.value for record in records])
    return found


@pytest.mark.parametrize(
    "settings",
    [
        {"acks": 2},
        {"acks": 1, "idempotent": True},
        {"acks": -1, "max_in_flight": 6},
        {"compression": "brotli"},
    ],
)
def test_settings_that_contradict_each_other_are_rejected(
    broker: ScriptedBroker, settings: dict[str, object]
) -> None:
    with pytest.raises(ValueError, match=r"acks|in_flight|brotli"):
        producer_of(broker, **settings)


def test_a_flush_sends_the_records_of_an_open_batch_together(broker: ScriptedBroker) -> None:
    with producer_of(broker) as producer:
        deliveries = [producer.send("orders", b"%d" % n, partition=0) for n in range(3)]
        producer.flush(60)
        assert [delivery.result(0).offset for delivery in deliveries] == [70, 71, 72]
    assert values_of(broker) == [[b"0", b"1", b"2"]]


def test_a_full_batch_is_sent_without_a_flush(broker: ScriptedBroker) -> None:
    with producer_of(broker, batch_bytes=200) as producer:
        first = producer.send("orders", b"x" * 150, partition=0)
        producer.send("orders", b"y" * 150, partition=0)
        assert first.result(60).offset == 70
    assert values_of(broker) == [[b"x" * 150], [b"y" * 150]]


def test_many_values_are_split_into_batches_in_order(broker: ScriptedBroker) -> None:
    with producer_of(broker, batch_bytes=300) as producer:
        producer.send_values("orders", [b"%050d" % n for n in range(20)], partition=0)
    batches = values_of(broker)
    assert len(batches) > 3
    assert [value for batch in batches for value in batch] == [b"%050d" % n for n in range(20)]


def test_a_record_beyond_the_limit_is_rejected_and_others_are_not(broker: ScriptedBroker) -> None:
    with producer_of(broker, max_request_bytes=1000) as producer:
        with pytest.raises(NotWrittenError) as error:
            producer.send("orders", b"x" * 1000)
        assert error.value.code is ErrorCode.MESSAGE_TOO_LARGE
        assert "max_request_bytes" in error.value.hint
        with pytest.raises(NotWrittenError):
            producer.send_values("orders", [b"small", b"x" * 1000])
        producer.send("orders", b"small")
    assert values_of(broker) == [[b"small"]]


@pytest.mark.parametrize("timestamp_ms", [-2, (1 << 63) - 1])
def test_a_timestamp_that_no_batch_can_store_is_rejected(
    broker: ScriptedBroker, timestamp_ms: int
) -> None:
    with producer_of(broker) as producer:
        with pytest.raises(NotWrittenError) as error:
            producer.send("orders", b"v", timestamp_ms=timestamp_ms)
        assert error.value.code is ErrorCode.INVALID_TIMESTAMP


def test_a_value_without_bytes_leaves_no_batch_behind(broker: ScriptedBroker) -> None:
    with producer_of(broker) as producer:
        with pytest.raises(TypeError):
            producer.send("orders", 3)  # type: ignore[arg-type]
        producer.flush(60)
    assert values_of(broker) == []


def test_missing_topics_and_partitions_are_reported_at_once(broker: ScriptedBroker) -> None:
    with producer_of(broker, auto_create=False) as producer:
        with pytest.raises(TopicNotFoundError):
            producer.send("absent", b"v")
        with pytest.raises(PartitionNotFoundError):
            producer.send("orders", b"v", partition=2)


def test_a_full_buffer_blocks_up_to_its_limit(broker: ScriptedBroker) -> None:
    broker.leaders["orders", 0] = -1
    settings = {"buffer_bytes": 100, "batch_bytes": 100, "max_block_ms": 20}
    producer = producer_of(broker, delivery_timeout_ms=60_000, **settings)
    producer.send("orders", b"x" * 200, partition=0)
    with pytest.raises(NotWrittenError, match="the buffer stayed full"):
        producer.send("orders", b"y", partition=0)
    broker.leaders.clear()
    producer.close(60)


def test_a_closed_producer_rejects_records(broker: ScriptedBroker) -> None:
    producer = producer_of(broker)
    producer.partitions("orders")
    producer.close()
    producer.close()
    with pytest.raises(NotWrittenError, match="closed"):
        producer.send("orders", b"v")


def test_text_is_refused_with_the_wanted_type() -> None:
    text: Any = "text"
    with ScriptedBroker() as broker, producer_of(broker) as producer:
        with pytest.raises(TypeError, match=r"value must be bytes .* use 'text'\.encode\(\)"):
            producer.send("orders", text)
        with pytest.raises(TypeError, match="key must be bytes"):
            producer.send("orders", b"value", text)
        with pytest.raises(TypeError, match="value must be bytes"):
            producer.send_values("orders", [b"value", text])
        for wrong in (None, b"orders"):
            with pytest.raises(TypeError, match="topic must be str"):
                producer.send(wrong, b"value")  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="topic must be str"):
                producer.send_values(wrong, [b"value"])  # type: ignore[arg-type]
        headers: Any = {"name": b"value"}
        with pytest.raises(TypeError, match=r"headers must be pairs .* not 'name'"):
            producer.send("orders", b"value", headers=headers)
        with pytest.raises(TypeError, match="partition must be int"):
            producer.send("orders", b"value", partition=text)
        for wrong_time in ("now", 1.5):
            with pytest.raises(TypeError, match="timestamp_ms must be int"):
                producer.send("orders", b"value", timestamp_ms=wrong_time)  # type: ignore[arg-type]
        producer.send("orders", b"value")
        producer.flush()
        assert values_of(broker)[-1][-1] == b"value"
