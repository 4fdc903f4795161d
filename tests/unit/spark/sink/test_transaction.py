"""The protocol of one batch between driver and broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.client import errors
from lakelog.protocol.commit_sets import SINK_TOPIC
from lakelog.protocol.offsets import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from lakelog.protocol.topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from lakelog.protocol.transactions import (
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from lakelog.spark.sink.control import Batch, Content, Control, Step
from lakelog.spark.sink.options import (
    BatchOrderError,
    FencedError,
    OtherQueryError,
    SinkOptions,
    UnknownOutcomeError,
    UnsupportedDeliveryError,
)
from lakelog.spark.sink.transaction import BatchTransaction
from scripted_broker import ScriptedBroker

BATCH = Batch("q", "r2", 7)
ROWS = Content(10, 99)


def control(next_batch: int, query: str = "q") -> Control:
    return Control(query_id=query, run_id="r1", generation=0, next_batch=next_batch, content=ROWS)


MINE = Control(query_id="q", run_id="r2", generation=0, next_batch=8, content=ROWS)


def committed(found: Control | None) -> OffsetFetchResponse:
    offset, text = (-1, "") if found is None else (found.next_batch, found.to_text())
    row = OffsetFetchResponsePartitions(
        partition_index=0, committed_offset=offset, committed_leader_epoch=-1, metadata=text
    )
    topic = OffsetFetchResponseTopics(name=SINK_TOPIC, partitions=[row])
    return OffsetFetchResponse(
        groups=[OffsetFetchResponseGroup(group_id="lk-sink-s", topics=[topic])]
    )


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedBroker]:
    monkeypatch.setattr(errors, "FIRST_S", 0.001)
    with ScriptedBroker({SINK_TOPIC: 1}) as broker:
        broker.on(InitProducerIdRequest, InitProducerIdResponse(producer_id=9, producer_epoch=4))
        broker.on(OffsetFetchRequest, committed(control(7)))
        broker.on(TxnOffsetCommitRequest, TxnOffsetCommitResponse())
        broker.on(EndTxnRequest, EndTxnResponse(producer_id=9, producer_epoch=5))
        yield broker


def opened(broker: ScriptedBroker, timeout_ms: int = 60_000) -> BatchTransaction:
    options = SinkOptions(bootstrap=broker.address, transaction_timeout_ms=timeout_ms)
    return BatchTransaction(options, "s", BATCH)


def ends(broker: ScriptedBroker) -> list[bool]:
    return [request.committed for request in broker.asked(EndTxnRequest)]


def order(broker: ScriptedBroker) -> list[type]:
    wanted = (InitProducerIdRequest, OffsetFetchRequest, TxnOffsetCommitRequest, EndTxnRequest)
    return [type(request) for request in broker.requests if isinstance(request, wanted)]


def test_a_batch_is_fenced_then_decided_then_committed(broker: ScriptedBroker) -> None:
    with opened(broker) as batch:
        assert batch.begin() is Step.WRITE
        assert batch.share() == (9, 4)
        batch.commit(ROWS)
    assert order(broker) == [
        InitProducerIdRequest,
        OffsetFetchRequest,
        TxnOffsetCommitRequest,
        EndTxnRequest,
    ]
    assert broker.asked(OffsetFetchRequest)[0].require_stable
    (offsets,) = broker.asked(TxnOffsetCommitRequest)
    row = offsets.topics[0].partitions[0]
    assert (offsets.group_id, offsets.producer_id, offsets.producer_epoch) == ("lk-sink-s", 9, 4)
    assert Control.from_text(row.committed_offset, row.committed_metadata or "") == MINE
    assert ends(broker) == [True]


def test_a_committed_batch_is_skipped_without_a_transaction(broker: ScriptedBroker) -> None:
    broker.on(OffsetFetchRequest, committed(control(8)))
    with opened(broker) as batch:
        assert batch.begin() is Step.SKIP
        assert not batch.is_first
        batch.check_repeated(ROWS)
        with pytest.raises(BatchOrderError, match=r"with 10 rows.*makes it of 12 rows"):
            batch.check_repeated(Content(12, 99))
    assert ends(broker) == []


def test_a_batch_of_another_query_is_refused(broker: ScriptedBroker) -> None:
    broker.on(OffsetFetchRequest, committed(control(7, "other")))
    with pytest.raises(OtherQueryError), opened(broker) as batch:
        batch.begin()
    assert ends(broker) == []


def test_a_failed_batch_is_aborted(broker: ScriptedBroker) -> None:
    with pytest.raises(ZeroDivisionError), opened(broker) as batch:
        batch.begin()
        batch.share()
        raise ZeroDivisionError
    assert ends(broker) == [False]


def test_a_commit_without_an_answer_is_repeated(broker: ScriptedBroker) -> None:
    done = EndTxnResponse(producer_id=9, producer_epoch=5)
    broker.on(EndTxnRequest, None, None, done)
    with opened(broker) as batch:
        batch.begin()
        batch.commit(ROWS)
    assert ends(broker) == [True, True, True]


def test_the_control_record_decides_when_the_coordinator_does_not_answer(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.on(OffsetFetchRequest, committed(control(7)), committed(MINE))
    broker.on(EndTxnRequest, None)
    batch = opened(broker)
    monkeypatch.setattr(batch._producer._cluster, "timeout_s", 0.05)
    with batch:
        batch.begin()
        batch.commit(ROWS)
    assert set(ends(broker)) == {True}


def test_a_commit_of_unknown_outcome_is_never_aborted(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.on(EndTxnRequest, None)
    batch = opened(broker, timeout_ms=50)
    monkeypatch.setattr(batch._producer._cluster, "timeout_s", 0.05)
    with pytest.raises(UnknownOutcomeError, match="batch 7 of sink 's' is committed"), batch:
        batch.begin()
        batch.commit(ROWS)
    assert set(ends(broker)) == {True}


@pytest.mark.parametrize(
    ("timeout_ms", "text"), [(60_000, "another run"), (0, "'kafka.transaction.timeout.ms'")]
)
def test_a_fenced_batch_names_its_cause(broker: ScriptedBroker, timeout_ms: int, text: str) -> None:
    broker.on(EndTxnRequest, EndTxnResponse(error_code=ErrorCode.PRODUCER_FENCED))
    with pytest.raises(FencedError, match=text), opened(broker, timeout_ms) as batch:
        batch.begin()
        batch.commit(ROWS)
    assert ends(broker) == [True]


def test_the_topic_of_control_records_is_created(broker: ScriptedBroker) -> None:
    del broker.topics[SINK_TOPIC]

    def create(request: CreateTopicsRequest) -> CreateTopicsResponse:
        broker.topics[request.topics[0].name] = request.topics[0].num_partitions
        return CreateTopicsResponse(topics=[CreatableTopicResult(name=SINK_TOPIC)])

    broker.on(CreateTopicsRequest, create)
    with opened(broker) as batch:
        batch.begin()
        batch.commit(ROWS)
    assert broker.topics == {SINK_TOPIC: 1}
    assert ends(broker) == [True]


def test_a_broker_without_epoch_bumps_is_refused_by_the_name_of_the_option(
    broker: ScriptedBroker,
) -> None:
    broker.versions[26] = (0, 4)
    text = r"'delivery'.*transaction\.version 2"
    with pytest.raises(UnsupportedDeliveryError, match=text), opened(broker) as batch:
        batch.begin()
