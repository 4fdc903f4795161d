"""The thread that sends batches: retries, identities and failures."""

from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.client.errors import NotWrittenError, OutcomeUnknownError
from lakelog.client.producer.api import Producer
from lakelog.protocol.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from lakelog.protocol.producers import InitProducerIdRequest, InitProducerIdResponse
from lakelog.records.batch import read_header
from scripted_broker import Answer, ScriptedBroker


def answering(code: int = 0, base_offset: int = 70) -> Answer:
    """Return an answer with the same error for all partitions of a request."""

    def answer(request: ProduceRequest) -> ProduceResponse:
        topics = [
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(
                        index=row.index, error_code=code, base_offset=base_offset
                    )
                    for row in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
        return ProduceResponse(responses=topics)

    return answer


@pytest.fixture(autouse=True)
def identity(broker: ScriptedBroker) -> None:
    broker.on(InitProducerIdRequest, InitProducerIdResponse(producer_id=9, producer_epoch=0))


def sequences(broker: ScriptedBroker) -> list[tuple[int, int, int]]:
    """Return producer id, epoch and sequence of each batch that has arrived."""
    found = []
    for request in broker.asked(ProduceRequest):
        for row in request.topic_data[0].partition_data:
            header = read_header(row.records)
            found.append((header.producer_id, header.producer_epoch, header.base_sequence))
    return found


def test_a_retry_has_the_same_sequence(broker: ScriptedBroker) -> None:
    """The broker detects by it that the record is already in the log."""
    moved = answering(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    broker.on(ProduceRequest, moved, None, answering())
    with Producer(broker.address, linger_ms=0) as producer:
        assert producer.send("orders", b"v", partition=0).result(60).offset == 70
    assert sequences(broker) == [(9, 0, 0)] * 3


def test_sequences_continue_in_each_partition(broker: ScriptedBroker) -> None:
    broker.on(ProduceRequest, answering())
    with Producer(broker.address, linger_ms=0) as producer:
        for partition in (0, 0, 1):
            producer.send("orders", b"v", partition=partition).result(60)
    assert sequences(broker) == [(9, 0, 0), (9, 0, 1), (9, 0, 0)]
    assert len(broker.asked(InitProducerIdRequest)) == 1


def test_a_lost_sequence_restarts_at_the_next_epoch(broker: ScriptedBroker) -> None:
    """KIP-360: the broker has forgotten the producer."""
    lost = answering(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    broker.on(ProduceRequest, answering(), lost, answering())
    with Producer(broker.address, linger_ms=0) as producer:
        for _ in range(2):
            producer.send("orders", b"v", partition=0).result(60)
    assert sequences(broker) == [(9, 0, 0), (9, 0, 1), (9, 1, 0)]


def test_a_fenced_producer_refuses_further_records(broker: ScriptedBroker) -> None:
    broker.on(ProduceRequest, answering(ErrorCode.INVALID_PRODUCER_EPOCH))
    with Producer(broker.address, linger_ms=0) as producer:
        with pytest.raises(NotWrittenError):
            producer.send("orders", b"v").result(60)
        with pytest.raises(NotWrittenError):
            for _ in range(1000):
                producer.send("orders", b"v").result(60)


def test_a_record_of_unknown_outcome_is_reported_as_such(broker: ScriptedBroker) -> None:
    broker.on(ProduceRequest, None)
    producer = Producer(broker.address, linger_ms=0, delivery_timeout_ms=50)
    with producer, pytest.raises(OutcomeUnknownError):
        producer.send("orders", b"v").result(60)


def test_without_acknowledgements_records_are_done_when_they_are_sent(
    broker: ScriptedBroker,
) -> None:
    broker.on(ProduceRequest, answering())
    with Producer(broker.address, acks=0, linger_ms=0) as producer:
        assert producer.send("orders", b"v").result(60).offset == -1
    assert broker.asked(InitProducerIdRequest) == [], "retries are impossible, so are duplicates"
