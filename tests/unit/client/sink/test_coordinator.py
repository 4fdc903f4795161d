"""Requests to the coordinator of a sink id."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.client.errors import ClientError, OutcomeUnknownError, UnsupportedError
from lakelog.client.sink import (
    BatchCommittedError,
    QueryRun,
    Receipt,
    RecordCount,
    Sink,
    SinkChild,
    SinkControl,
)
from lakelog.client.sink.coordinator import AnotherQueryError, SinkError, check_sink
from lakelog.protocol.commit_sets import ChildState, Refusal, RefusedCommitSet, SinkState
from lakelog.protocol.transactions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from scripted_broker import ScriptedBroker

RUN = QueryRun("daily", "query", "run", 7, 3, next_batch=5)
RECEIPT = Receipt("daily/5/0/0", 9, 1, (RecordCount("orders", 1, 4), RecordCount("orders", 0, 3)))
COMMITTED = EndTxnResponse(sink=SinkState(query_id="query", run_id="run", next_batch=6))


@pytest.fixture
def sink(sinks: ScriptedBroker) -> Iterator[Sink]:
    with Sink(sinks.address, "daily", timeout_s=1.0) as sink:
        yield sink


@pytest.mark.parametrize("name", ["", "daily/1"])
def test_a_sink_id_is_not_empty_and_has_no_slash(name: str) -> None:
    with pytest.raises(ValueError, match="sink id"):
        Sink("localhost:9092", name)


def test_a_run_has_the_identity_and_next_batch_of_the_response(
    sinks: ScriptedBroker, sink: Sink
) -> None:
    state = SinkState(query_id="query", run_id="run", next_batch=5)
    answer = InitProducerIdResponse(producer_id=7, producer_epoch=3, sink=state)
    sinks.on(InitProducerIdRequest, answer)
    assert sink.begin("query", "run", 4, expires=True) == RUN
    (request,) = sinks.asked(InitProducerIdRequest)
    assert request.transactional_id == "daily"
    assert request.run is not None
    assert (request.run.query_id, request.run.run_id) == ("query", "run")
    assert request.run.expires


def test_a_commit_names_the_winners_with_their_counts(sinks: ScriptedBroker, sink: Sink) -> None:
    sinks.on(EndTxnRequest, COMMITTED)
    sink.commit(RUN, 5, [RECEIPT])
    (request,) = sinks.asked(EndTxnRequest)
    assert (request.transactional_id, request.producer_id, request.producer_epoch) == (
        "daily",
        7,
        3,
    )
    assert request.committed
    assert request.commit_set is not None
    (winner,) = request.commit_set.winners
    (topic,) = winner.topics
    assert [(row.index, row.records) for row in topic.partitions] == [(0, 3), (1, 4)]


def test_a_commit_without_an_answer_is_repeated_as_it_was(
    sinks: ScriptedBroker, sink: Sink
) -> None:
    sinks.on(EndTxnRequest, None, COMMITTED)
    sink.commit(RUN, 5, [RECEIPT], b"rows")
    first, second = sinks.asked(EndTxnRequest)
    assert first == second
    assert first.commit_set is not None
    assert bytes(first.commit_set.content) == b"rows"


def test_a_commit_that_no_coordinator_answers_has_an_unknown_outcome(
    sinks: ScriptedBroker, sink: Sink
) -> None:
    sinks.on(EndTxnRequest, None)
    with pytest.raises(OutcomeUnknownError, match="batch 5 of sink 'daily' may or may not"):
        sink.commit(RUN, 5, [RECEIPT])
    assert all(request.committed for request in sinks.asked(EndTxnRequest)), "never an abort"


def test_an_abort_has_no_winners_and_reports_a_committed_batch(
    sinks: ScriptedBroker, sink: Sink
) -> None:
    refused = RefusedCommitSet(reason=Refusal.BATCH_COMMITTED, message="batch 5 is committed")
    sinks.on(EndTxnRequest, EndTxnResponse(error_code=48, refused=refused))
    with pytest.raises(BatchCommittedError, match="batch 5 is committed"):
        sink.abort(RUN, 5)
    (request,) = sinks.asked(EndTxnRequest)
    assert not request.committed
    assert request.commit_set is not None
    assert request.commit_set.winners == []


def test_the_control_record_is_read_with_unfinished_children(
    sinks: ScriptedBroker, sink: Sink
) -> None:
    child = ChildState(
        transactional_id="daily/6/0/0", state="Ongoing", start_time_ms=8, partitions=2
    )
    state = SinkState(query_id="query", run_id="run", next_batch=6, content=b"rows")
    row = DescribedTransaction(transactional_id="daily", sink=state, children=[child])
    unknown = DescribedTransaction(transactional_id="daily", error_code=105)
    sinks.on(
        DescribeTransactionsRequest,
        DescribeTransactionsResponse(transaction_states=[row]),
        DescribeTransactionsResponse(transaction_states=[unknown]),
    )
    children = (SinkChild("daily/6/0/0", "Ongoing", 8, 2),)
    assert sink.read() == SinkControl("query", "run", 6, children, b"rows")
    assert sink.read() is None


def test_a_removal_has_no_identity(sinks: ScriptedBroker, sink: Sink) -> None:
    sinks.on(EndTxnRequest, EndTxnResponse())
    sink.remove()
    (request,) = sinks.asked(EndTxnRequest)
    assert request.removes_sink
    assert not request.committed


def test_nothing_is_sent_to_a_broker_without_the_feature(broker: ScriptedBroker) -> None:
    """It would ignore the commit set, and report success without committing a record."""
    broker.on(EndTxnRequest, EndTxnResponse())
    with Sink(broker.address, "daily") as sink, pytest.raises(UnsupportedError, match="feature"):
        sink.commit(RUN, 5, [RECEIPT])
    assert not broker.asked(EndTxnRequest)


def test_each_reason_has_its_own_error_with_the_brokers_text() -> None:
    found = set()
    for reason in Refusal:
        with pytest.raises(SinkError, match="because of that") as raised:
            check_sink(48, RefusedCommitSet(reason=reason, message="because of that"), "sink 's'")
        assert not raised.value.retriable
        found.add(type(raised.value))
    assert SinkError not in found


def test_the_error_has_the_control_record_of_the_response() -> None:
    sink = SinkState(query_id="q", run_id="r", next_batch=4)
    refused = RefusedCommitSet(reason=Refusal.ANOTHER_QUERY, message="text")
    with pytest.raises(AnotherQueryError) as raised:
        check_sink(48, refused, "sink 's'", sink)
    assert raised.value.sink == sink


def test_a_reason_of_a_newer_broker_is_a_refusal_too() -> None:
    with pytest.raises(SinkError, match="new reason"):
        check_sink(48, RefusedCommitSet(reason=99, message="new reason"), "sink 's'")


def test_other_codes_are_ordinary_errors() -> None:
    check_sink(0, None, "sink 's'")
    with pytest.raises(ClientError, match="sink 's'") as raised:
        check_sink(51, None, "sink 's'")
    assert raised.value.code is ErrorCode.CONCURRENT_TRANSACTIONS
    assert raised.value.retriable


def test_a_sink_is_not_removed_by_a_broker_without_commit_sets() -> None:
    """It would abort an ordinary transaction of this id instead."""
    with ScriptedBroker() as broker, Sink(broker.address, "daily", timeout_s=10.0) as sink:
        with pytest.raises(UnsupportedError):
            sink.remove()
        assert not broker.asked(EndTxnRequest)
