"""The thread that sends batches: retries, identities and failures."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.client.cluster import Cluster
from lakelog.client.errors import ConnectionLostError, NotWrittenError, OutcomeUnknownError
from lakelog.client.producer.api import Producer
from lakelog.client.producer.batch import PartitionQueue, ProducerBatch
from lakelog.client.producer.sender import Link
from lakelog.protocol.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from lakelog.protocol.transactions import InitProducerIdRequest, InitProducerIdResponse
from lakelog.records.batch import read_header
from lakelog.records.builder import BatchBuilder
from scripted_broker import Answer, ScriptedBroker, topic_id


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


def batch_of(partition: int) -> ProducerBatch:
    builder = BatchBuilder()
    builder.append(1, None, b"v")
    return ProducerBatch(PartitionQueue("orders", partition), builder, 0.0)


def response(*rows: PartitionProduceResponse, throttle_ms: int = 0) -> ProduceResponse:
    topic = TopicProduceResponse(
        name="orders", topic_id=topic_id("orders"), partition_responses=list(rows)
    )
    return ProduceResponse(responses=[topic], throttle_time_ms=throttle_ms)


@pytest.fixture
def link(cluster: Cluster) -> Iterator[Link]:
    cluster.refresh(["orders"])
    link = Link(cluster.connect(1), acks=-1, timeout_s=30.0)
    yield link
    link.close()


@pytest.mark.parametrize("version", [12, 13])
def test_each_batch_gets_the_answer_of_its_partition(
    broker: ScriptedBroker, cluster: Cluster, version: int
) -> None:
    """Version 13 has topic ids instead of names."""
    broker.versions[0] = (3, version)
    refused = PartitionProduceResponse(
        index=1,
        error_code=87,
        error_message="2 records were refused",
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=4, batch_index_error_message="no key")
        ],
    )
    written = PartitionProduceResponse(index=0, base_offset=70, log_append_time_ms=9)
    broker.on(ProduceRequest, response(refused, written, throttle_ms=2000))
    cluster.refresh(["orders"])
    link = Link(cluster.connect(1), acks=-1, timeout_s=30.0)
    first, second = batch_of(0), batch_of(1)
    link.send([first, second], cluster.view, now_s=5.0)
    assert (link.in_flight, link.deadline_s) == (1, 37.0)
    answers = {answer.batch: answer for answer in link.receive(now_s=6.0)}
    assert (answers[first].base_offset, answers[first].append_time_ms) == (70, 9)
    assert answers[second].code is ErrorCode.INVALID_RECORD
    assert answers[second].message == "2 records were refused (record 4: no key)"
    assert link.not_before_s == 8.0, "throttled (KIP-219)"
    assert link.in_flight == 0
    link.close()


def test_a_partition_without_an_answer_has_an_unknown_outcome(
    broker: ScriptedBroker, cluster: Cluster, link: Link
) -> None:
    broker.on(ProduceRequest, response())
    link.send([batch_of(0)], cluster.view, 0.0)
    (answer,) = link.receive(0.0)
    assert answer.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert answer.message == "the response lacks the partition"


def test_batches_of_a_lost_connection_are_returned(
    broker: ScriptedBroker, cluster: Cluster, link: Link
) -> None:
    broker.on(ProduceRequest, None)
    batches = [batch_of(0), batch_of(1)]
    for batch in batches:
        link.send([batch], cluster.view, 0.0)
    with pytest.raises(ConnectionLostError):
        link.receive(0.0)
    assert link.close() == batches
    assert link.close() == []
