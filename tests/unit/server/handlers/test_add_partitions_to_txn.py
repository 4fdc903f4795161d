from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
    DescribeTransactionsRequest,
)
from lakelog.server.handlers import describe_transactions
from lakelog.server.handlers.add_partitions_to_txn import handle
from memory_broker import MemoryBroker
from memory_clients import Producer, add_partition, init_producer

E = ErrorCode


def of_client(
    world: MemoryBroker, producer: Producer, *indexes: int, version: int = 3
) -> list[int]:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="id",
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="orders", partitions=list(indexes))],
    )
    return codes(world.ask(handle, request, version).results_by_topic_v3_and_below)


def of_broker(
    world: MemoryBroker,
    producer: Producer,
    *indexes: int,
    verify_only: bool = True,
    version: int = 5,
) -> list[int]:
    transaction = AddPartitionsToTxnTransaction(
        transactional_id="id",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        verify_only=verify_only,
        topics=[AddPartitionsToTxnTopic(name="orders", partitions=list(indexes))],
    )
    request = AddPartitionsToTxnRequest(transactions=[transaction])
    (result,) = world.ask(handle, request, version).results_by_transaction
    assert result.transactional_id == "id"
    return codes(result.topic_results)


def codes(topics: list[AddPartitionsToTxnTopicResult]) -> list[int]:
    return [each.partition_error_code for topic in topics for each in topic.results_by_partition]


def members(world: MemoryBroker) -> set[tuple[str, int]]:
    """Return the partitions of the open transaction."""
    request = DescribeTransactionsRequest(transactional_ids=["id"])
    (found,) = world.ask(describe_transactions.handle, request, 0).transaction_states
    return {(topic.topic, index) for topic in found.topics for index in topic.partitions}


def test_a_client_adds_the_partitions_of_one_transaction(coordinators: MemoryBroker) -> None:
    assert of_client(coordinators, init_producer(coordinators), 0, 1) == [E.NONE, E.NONE]
    assert members(coordinators) == {("orders", 0), ("orders", 1)}


def test_an_unknown_partition_keeps_the_others_from_being_added(
    coordinators: MemoryBroker,
) -> None:
    producer = init_producer(coordinators)
    expected = [E.OPERATION_NOT_ATTEMPTED, E.UNKNOWN_TOPIC_OR_PARTITION]
    assert of_client(coordinators, producer, 0, 2) == expected
    assert of_broker(coordinators, producer, 0, 2, verify_only=False) == expected
    assert members(coordinators) == set()


@pytest.mark.parametrize(
    ("version", "code"), [(1, E.INVALID_PRODUCER_EPOCH), (2, E.PRODUCER_FENCED)]
)
def test_a_fenced_client_gets_the_code_of_its_version(
    coordinators: MemoryBroker, version: int, code: ErrorCode
) -> None:
    fenced = init_producer(coordinators)
    init_producer(coordinators)
    assert of_client(coordinators, fenced, 0, version=version) == [code]


def test_a_broker_verifies_or_adds(coordinators: MemoryBroker) -> None:
    producer = init_producer(coordinators)
    add_partition(coordinators, producer, 0)
    assert of_broker(coordinators, producer, 0) == [E.NONE]
    assert members(coordinators) == {("orders", 0)}
    assert of_broker(coordinators, producer, 1, verify_only=False) == [E.NONE]
    assert members(coordinators) == {("orders", 0), ("orders", 1)}


@pytest.mark.parametrize(
    ("version", "code"), [(4, E.INVALID_TXN_STATE), (5, E.TRANSACTION_ABORTABLE)]
)
def test_transaction_abortable_came_with_version_5(
    coordinators: MemoryBroker, version: int, code: ErrorCode
) -> None:
    producer = init_producer(coordinators)
    add_partition(coordinators, producer, 0)
    assert of_broker(coordinators, producer, 0, 1, version=version) == [E.NONE, code]


def test_an_unknown_producer_is_rejected(coordinators: MemoryBroker) -> None:
    assert of_client(coordinators, Producer(99, 0), 0) == [E.INVALID_PRODUCER_ID_MAPPING]


def test_the_transactions_of_a_request_are_replicated_side_by_side(
    coordinators: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None waits for the record of another one."""
    decided: list[str] = []
    transactions = coordinators.broker.transactions

    def verify(transactional_id: str, *rest: object, add: bool) -> object:
        decided.append(transactional_id)
        future = asyncio.get_running_loop().create_future()
        if len(decided) == 3:
            for each in [*waiting, future]:
                each.set_result({("orders", 0): E.NONE})
        waiting.append(future)
        return future

    waiting: list[Any] = []
    monkeypatch.setattr(transactions, "verify", verify)
    topics = [AddPartitionsToTxnTopic(name="orders", partitions=[0])]
    request = AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(transactional_id=name, topics=topics) for name in "abc"
        ]
    )
    results = coordinators.ask(handle, request, 5).results_by_transaction
    assert [each.transactional_id for each in results] == decided == ["a", "b", "c"]
