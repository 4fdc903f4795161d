from __future__ import annotations

import asyncio

import pytest

from fake_broker import FakeBroker, FakeContext, FakeTopics, FakeTransactions
from lakelog.base.errors import ErrorCode
from lakelog.coordinator.transaction.state import TransactionVersion
from lakelog.coordinator.transaction.transitions import Producer
from lakelog.protocol.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from lakelog.server.handlers.add_partitions_to_txn import handle

E = ErrorCode


def fake(code: ErrorCode = E.NONE) -> FakeBroker:
    return FakeBroker(FakeTopics({"orders": 2}), FakeTransactions(code))


def ask(
    broker: FakeBroker, version: int, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    return asyncio.run(handle(broker.broker, FakeContext(version).context, request))


def of_client(*partitions: int) -> AddPartitionsToTxnRequest:
    topic = AddPartitionsToTxnTopic(name="orders", partitions=list(partitions))
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="id",
        v3_and_below_producer_id=7,
        v3_and_below_producer_epoch=1,
        v3_and_below_topics=[topic],
    )


def of_broker(*, verify_only: bool) -> AddPartitionsToTxnRequest:
    topic = AddPartitionsToTxnTopic(name="orders", partitions=[0])
    transaction = AddPartitionsToTxnTransaction(
        transactional_id="id",
        producer_id=7,
        producer_epoch=1,
        verify_only=verify_only,
        topics=[topic],
    )
    return AddPartitionsToTxnRequest(transactions=[transaction])


def codes(topics: list[AddPartitionsToTxnTopicResult]) -> list[int]:
    return [each.partition_error_code for topic in topics for each in topic.results_by_partition]


def test_a_client_adds_the_partitions_of_one_transaction() -> None:
    broker = fake()
    assert codes(ask(broker, 3, of_client(0, 1)).results_by_topic_v3_and_below) == [0, 0]
    wanted = [("orders", 0), ("orders", 1)]
    asked = ("id", Producer(7, 1), wanted, TransactionVersion.CLASSIC)
    assert broker.transactions.asked == [asked]


def test_an_unknown_partition_keeps_the_others_from_being_added() -> None:
    broker = fake()
    results = ask(broker, 3, of_client(0, 2)).results_by_topic_v3_and_below
    assert codes(results) == [E.OPERATION_NOT_ATTEMPTED, E.UNKNOWN_TOPIC_OR_PARTITION]
    assert not broker.transactions.asked


@pytest.mark.parametrize(
    ("version", "code"), [(1, E.INVALID_PRODUCER_EPOCH), (2, E.PRODUCER_FENCED)]
)
def test_a_fenced_client_gets_the_code_of_its_version(version: int, code: ErrorCode) -> None:
    results = ask(fake(E.PRODUCER_FENCED), version, of_client(0)).results_by_topic_v3_and_below
    assert codes(results) == [code]


@pytest.mark.parametrize("verify_only", [False, True])
def test_a_broker_verifies_or_adds(verify_only: bool) -> None:
    broker = fake()
    (result,) = ask(broker, 5, of_broker(verify_only=verify_only)).results_by_transaction
    assert (result.transactional_id, codes(result.topic_results)) == ("id", [0])
    assert broker.transactions.asked == [("id", 7, 1, [("orders", 0)], not verify_only)]


@pytest.mark.parametrize(
    ("version", "code"), [(4, E.INVALID_TXN_STATE), (5, E.TRANSACTION_ABORTABLE)]
)
def test_transaction_abortable_came_with_version_5(version: int, code: ErrorCode) -> None:
    request = of_broker(verify_only=True)
    (result,) = ask(fake(E.TRANSACTION_ABORTABLE), version, request).results_by_transaction
    assert codes(result.topic_results) == [code]
