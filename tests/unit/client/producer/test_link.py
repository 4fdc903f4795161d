"""Produce requests in flight at one broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.client.cluster import Cluster
from lakelog.client.errors import ConnectionLostError
from lakelog.client.producer.batch import PartitionQueue, ProducerBatch
from lakelog.client.producer.link import Link
from lakelog.protocol.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from lakelog.records.builder import BatchBuilder
from scripted_broker import ScriptedBroker, topic_id


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
