"""Tasks of a sink, one after another in one producer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.client.errors import ClientError
from lakelog.client.sink import BatchCommittedError, QueryRun, Receipt, RecordCount, SinkProducer
from lakelog.protocol.commit_sets import Refusal, RefusedCommitSet
from lakelog.protocol.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from lakelog.protocol.transactions import (
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from lakelog.records.batch import read_header
from scripted_broker import Answer, ScriptedBroker

RUN = QueryRun("daily", "query", "run", 7, 3, next_batch=5)


def answering(code: int) -> Answer:
    def answer(request: ProduceRequest) -> ProduceResponse:
        topics = []
        for asked in request.topic_data:
            rows = [
                PartitionProduceResponse(index=row.index, error_code=code, base_offset=1)
                for row in asked.partition_data
            ]
            topics.append(
                TopicProduceResponse(
                    name=asked.name, topic_id=asked.topic_id, partition_responses=rows
                )
            )
        return ProduceResponse(responses=topics)

    return answer


@pytest.fixture
def producer(sinks: ScriptedBroker) -> Iterator[SinkProducer]:
    sinks.on(
        InitProducerIdRequest,
        InitProducerIdResponse(producer_id=9, producer_epoch=4),
        InitProducerIdResponse(producer_id=10, producer_epoch=0),
    )
    sinks.on(ProduceRequest, answering(0))
    sinks.on(EndTxnRequest, EndTxnResponse(producer_id=9, producer_epoch=6))
    with SinkProducer(sinks.address, linger_ms=0) as producer:
        yield producer


def test_a_task_leaves_its_transaction_open_and_returns_its_counts(
    sinks: ScriptedBroker, producer: SinkProducer
) -> None:
    producer.open(RUN, 5, 0, 2)
    for partition in (1, 0, 1):
        producer.send("orders", b"v", partition=partition)
    written = (RecordCount("orders", 0, 1), RecordCount("orders", 1, 2))
    assert producer.finish() == Receipt("daily/5/0/2", 9, 4, written)
    assert not sinks.asked(EndTxnRequest)
    (request,) = sinks.asked(InitProducerIdRequest)
    assert request.parent is not None
    assert (request.parent.producer_id, request.parent.producer_epoch) == (7, 3)
    for sent in sinks.asked(ProduceRequest):
        assert sent.transactional_id == "daily/5/0/2"
        header = read_header(sent.topic_data[0].partition_data[0].records)
        assert (header.producer_id, header.producer_epoch) == (9, 4)
        assert header.is_transactional


def test_the_next_task_has_its_own_identity_and_counts(
    sinks: ScriptedBroker, producer: SinkProducer
) -> None:
    producer.open(RUN, 5, 0, 2)
    producer.send("orders", b"v", partition=0)
    producer.finish()
    producer.open(RUN, 5, 1, 3)
    producer.send("orders", b"v", partition=1)
    assert producer.finish() == Receipt("daily/5/1/3", 10, 0, (RecordCount("orders", 1, 1),))
    last = sinks.asked(ProduceRequest)[-1]
    assert last.transactional_id == "daily/5/1/3"
    header = read_header(last.topic_data[0].partition_data[0].records)
    assert (header.producer_id, header.base_sequence) == (10, 0)


def test_a_task_without_records_has_an_empty_receipt(producer: SinkProducer) -> None:
    producer.open(RUN, 5, 0, 2)
    assert producer.finish().written == ()


def test_a_task_of_a_committed_batch_learns_so(
    sinks: ScriptedBroker, producer: SinkProducer
) -> None:
    refused = RefusedCommitSet(reason=Refusal.BATCH_COMMITTED, message="batch 4 is committed")
    answer = InitProducerIdResponse(error_code=48, refused=refused)
    sinks.on(InitProducerIdRequest, answer)
    with pytest.raises(BatchCommittedError):
        producer.open(RUN, 4, 0, 0)
    with pytest.raises(ClientError, match="no task is open"):
        producer.send("orders", b"v")


def test_records_are_refused_outside_a_task(producer: SinkProducer) -> None:
    with pytest.raises(ClientError, match="no task is open"):
        producer.send("orders", b"v")
    with pytest.raises(ClientError, match="no task is open"):
        producer.finish()
    producer.open(RUN, 5, 0, 0)
    with pytest.raises(ClientError, match="another task is open"):
        producer.open(RUN, 5, 1, 0)


def test_a_failed_task_has_no_receipt_and_is_aborted(
    sinks: ScriptedBroker, producer: SinkProducer
) -> None:
    sinks.on(ProduceRequest, answering(ErrorCode.MESSAGE_TOO_LARGE))
    producer.open(RUN, 5, 0, 0)
    producer.send("orders", b"v", partition=0)
    with pytest.raises(ClientError, match="MESSAGE_TOO_LARGE"):
        producer.finish()
    producer.abort()
    (request,) = sinks.asked(EndTxnRequest)
    assert (request.transactional_id, request.committed) == ("daily/5/0/0", False)
    assert producer.is_usable


def test_a_closed_producer_aborts_its_open_task(
    sinks: ScriptedBroker, producer: SinkProducer
) -> None:
    producer.open(RUN, 5, 0, 0)
    producer.close()
    assert [request.transactional_id for request in sinks.asked(EndTxnRequest)] == ["daily/5/0/0"]
    assert not producer.is_usable
