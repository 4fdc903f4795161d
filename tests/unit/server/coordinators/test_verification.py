"""The coordinator that verifies a transaction may be on another broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.transaction.coordinator import TRANSACTION_TOPIC
from lakelog.protocol.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from lakelog.server.coordinators.leaders import PartitionLeaders
from lakelog.server.coordinators.verification import ClusterVerification
from lakelog.server.inter_broker.errors import PeerTimedOutError
from memory_broker import MemoryBroker
from memory_clients import add_partition, init_producer

E = ErrorCode
OWN, OTHER = 1, 2


class OtherBroker:
    """Answers with these codes by partition of `orders`, or fails a request."""

    def __init__(self, codes: dict[int, ErrorCode], failure: KafkaError | None = None) -> None:
        self.codes = codes
        self.failure = failure
        self.requests: list[AddPartitionsToTxnRequest] = []

    async def request(self, message: Any, *, timeout_s: float) -> Any:
        self.requests.append(message)
        if self.failure is not None:
            raise self.failure
        (transaction,) = message.transactions
        results = [
            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
            for index, code in self.codes.items()
        ]
        topic = AddPartitionsToTxnTopicResult(name="orders", results_by_partition=results)
        result = AddPartitionsToTxnResult(
            transactional_id=transaction.transactional_id, topic_results=[topic]
        )
        return AddPartitionsToTxnResponse(results_by_transaction=[result])


def verified(
    world: MemoryBroker, other: OtherBroker | None, *, add: bool = False, producer_id: int = 7
) -> dict[int, ErrorCode]:
    """Verify two partitions of `orders`; return their codes."""
    peers: dict[int, Any] = {OTHER: other}
    broker = world.broker
    leaders = PartitionLeaders(OWN, lambda: broker.image, peers.get, 30.0)
    verification = ClusterVerification(leaders, broker.transactions, world.tasks)
    wanted = [("orders", 0), ("orders", 1)]

    async def ask() -> Mapping[tuple[str, int], ErrorCode]:
        return await verification.verify("id", producer_id, 0, wanted, add=add)

    found = world.run(ask())
    return {index: code for (_, index), code in found.items()}


@pytest.mark.parametrize("add", [True, False])
def test_a_remote_coordinator_decides(coordinators: MemoryBroker, add: bool) -> None:
    coordinators.change_leader(TRANSACTION_TOPIC, OTHER, (OTHER,))
    codes = {0: E.NONE, 1: E.TRANSACTION_ABORTABLE}
    other = OtherBroker(codes)
    assert verified(coordinators, other, add=add) == codes
    ((transaction,),) = [request.transactions for request in other.requests]
    assert (transaction.transactional_id, transaction.producer_id) == ("id", 7)
    assert transaction.verify_only is not add
    topics = [(topic.name, topic.partitions) for topic in transaction.topics]
    assert topics == [("orders", [0, 1])]


def test_the_coordinator_of_this_broker_decides_at_once(coordinators: MemoryBroker) -> None:
    producer = init_producer(coordinators)
    add_partition(coordinators, producer)
    found = verified(coordinators, None, producer_id=producer.producer_id)
    assert found == {0: E.NONE, 1: E.TRANSACTION_ABORTABLE}


@pytest.mark.parametrize(
    ("leader", "other"),
    [
        (OTHER, OtherBroker({}, PeerTimedOutError("late"))),
        (OTHER, OtherBroker({})),
        (OTHER, None),
        (-1, OtherBroker({0: E.NONE, 1: E.NONE})),
    ],
    ids=["late", "no result", "no address", "no leader"],
)
def test_a_producer_has_to_retry_without_a_result(
    coordinators: MemoryBroker, leader: int, other: OtherBroker | None
) -> None:
    coordinators.change_leader(TRANSACTION_TOPIC, leader, (OTHER,))
    assert verified(coordinators, other) == dict.fromkeys((0, 1), E.COORDINATOR_NOT_AVAILABLE)


class EndingTransaction(OtherBroker):
    """A coordinator whose previous transaction ends after so many requests."""

    def __init__(self, requests: int) -> None:
        super().__init__({0: E.CONCURRENT_TRANSACTIONS, 1: E.CONCURRENT_TRANSACTIONS})
        self._left = requests

    async def request(self, message: Any, *, timeout_s: float) -> Any:
        answer = await super().request(message, timeout_s=timeout_s)
        self._left -= 1
        if not self._left:
            self.codes = {0: E.NONE, 1: E.NONE}
        return answer


@pytest.mark.parametrize(
    ("requests", "add", "asked", "code"),
    [
        (2, True, 3, E.NONE),
        (99, True, 6, E.CONCURRENT_TRANSACTIONS),
        (2, False, 1, E.CONCURRENT_TRANSACTIONS),
    ],
)
def test_the_coordinator_is_asked_again_while_the_previous_transaction_ends(
    coordinators: MemoryBroker, requests: int, add: bool, asked: int, code: ErrorCode
) -> None:
    coordinators.change_leader(TRANSACTION_TOPIC, OTHER, (OTHER,))
    other = EndingTransaction(requests)
    assert verified(coordinators, other, add=add) == {0: code, 1: code}
    assert len(other.requests) == asked


def test_without_the_coordinator_s_topic_this_broker_refuses(world: MemoryBroker) -> None:
    world.create("orders", 2)
    assert verified(world, None) == dict.fromkeys((0, 1), E.NOT_COORDINATOR)
