"""Only answers of all present coordinators, with all their records, are used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.transaction.coordinator import TRANSACTION_TOPIC
from lakelog.metadata.image import MetadataImage
from lakelog.protocol.fetch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from lakelog.protocol.producers import InitProducerIdRequest, InitProducerIdResponse
from lakelog.protocol.transactions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from lakelog.protocol.transactions import ListedTransaction as Listed
from lakelog.server.coordinators.known_transactions import KnownTransactions
from lakelog.server.coordinators.leaders import PartitionLeaders
from lakelog.server.inter_broker.errors import PeerTimedOutError
from memory_broker import MemoryBroker
from memory_clients import add_partition, init_producer

E = ErrorCode
OWN, OTHER = 1, 2


class OtherCoordinator:
    """Coordinates the transactional id `theirs` of producer id 50.

    Attributes:
        confirms: codes of the next confirmations of its leader epochs.
    """

    def __init__(self, *, confirms: tuple[ErrorCode, ...] = (), listed: ErrorCode = E.NONE) -> None:
        self.confirms = list(confirms)
        self.listed = listed
        self.described = E.NONE
        self.requests: list[Any] = []

    async def request(self, message: Any, *, timeout_s: float) -> Any:
        self.requests.append(message)
        answers: dict[type, Callable[[Any], Any]] = {
            OffsetForLeaderEpochRequest: self._confirm,
            ListTransactionsRequest: self._list,
            DescribeTransactionsRequest: self._describe,
            InitProducerIdRequest: lambda request: InitProducerIdResponse(),
        }
        return answers[type(message)](message)

    def _confirm(self, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        code = self.confirms.pop(0) if self.confirms else E.NONE
        (topic,) = request.topics
        ends = [EpochEndOffset(partition=e.partition, error_code=code) for e in topic.partitions]
        return OffsetForLeaderEpochResponse(
            topics=[OffsetForLeaderTopicResult(topic=topic.topic, partitions=ends)]
        )

    def _list(self, request: ListTransactionsRequest) -> ListTransactionsResponse:
        found = [Listed(transactional_id="theirs", producer_id=50, transaction_state="Ongoing")]
        wanted = found if 50 in request.producer_id_filters else []
        return ListTransactionsResponse(error_code=self.listed, transaction_states=wanted)

    def _describe(self, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
        states = [
            DescribedTransaction(transactional_id=name, producer_id=50, error_code=self.described)
            for name in request.transactional_ids
        ]
        return DescribeTransactionsResponse(transaction_states=states)


async def is_current() -> None:
    """The image has every entry of the metadata log."""


def known_to(world: MemoryBroker, other: Any = None) -> KnownTransactions:
    peers: dict[int, Any] = {OTHER: other}
    broker = world.broker
    leaders = PartitionLeaders(OWN, lambda: broker.image, peers.get, 30.0)
    return KnownTransactions(leaders, broker.transactions, is_current)


def ids(world: MemoryBroker, other: Any, *producer_ids: int) -> dict[int, str]:
    found = world.run(known_to(world, other).of(producer_ids))
    return {producer_id: state.transactional_id for producer_id, state in found.items()}


@pytest.fixture
def elsewhere(coordinators: MemoryBroker) -> MemoryBroker:
    """A broker with a coordinator on another broker."""
    coordinators.change_leader(TRANSACTION_TOPIC, OTHER, (OTHER,))
    return coordinators


def test_this_broker_s_coordinator_answers(coordinators: MemoryBroker) -> None:
    producer = init_producer(coordinators)
    add_partition(coordinators, producer)
    found = coordinators.run(known_to(coordinators).of([producer.producer_id, 4711]))
    (state,) = found.values()
    assert (state.producer_id, state.transaction_state) == (producer.producer_id, "Ongoing")
    assert [(topic.topic, topic.partitions) for topic in state.topics] == [("orders", [0])]


def test_another_coordinator_confirms_its_leader_epoch_before_and_after(
    elsewhere: MemoryBroker,
) -> None:
    other = OtherCoordinator()
    assert ids(elsewhere, other, 50, 4711) == {50: "theirs"}
    before, _, _, after = other.requests
    assert before == after
    (asked,) = before.topics[0].partitions
    partition = elsewhere.broker.image.partition(TRANSACTION_TOPIC, 0)
    assert partition is not None
    assert asked.current_leader_epoch == partition.leader_epoch


@pytest.mark.parametrize(
    "other",
    [
        OtherCoordinator(confirms=(E.UNKNOWN_LEADER_EPOCH,)),
        OtherCoordinator(confirms=(E.NONE, E.FENCED_LEADER_EPOCH)),
        OtherCoordinator(confirms=(E.NONE, E.NOT_LEADER_OR_FOLLOWER)),
        OtherCoordinator(listed=E.COORDINATOR_LOAD_IN_PROGRESS),
        None,
    ],
)
def test_a_coordinator_that_may_not_know_all_gives_no_answer(
    elsewhere: MemoryBroker, other: OtherCoordinator | None
) -> None:
    with pytest.raises(KafkaError):
        ids(elsewhere, other, 4711)


def test_an_id_that_cannot_be_described_gives_no_answer(elsewhere: MemoryBroker) -> None:
    other = OtherCoordinator()
    other.described = E.COORDINATOR_LOAD_IN_PROGRESS
    with pytest.raises(KafkaError):
        ids(elsewhere, other, 50)


def test_a_partition_without_a_leader_gives_no_answer(coordinators: MemoryBroker) -> None:
    coordinators.change_leader(TRANSACTION_TOPIC, -1, (OTHER,))
    with pytest.raises(KafkaError):
        ids(coordinators, None, 4711)


def test_the_image_is_read_again_before_the_coordinators_are_chosen(
    elsewhere: MemoryBroker,
) -> None:
    old, image = MetadataImage(), elsewhere.broker.image
    images = [old]

    async def catch_up() -> None:
        images.append(image)

    peers: dict[int, Any] = {OTHER: OtherCoordinator()}
    leaders = PartitionLeaders(OWN, lambda: images[-1], peers.get, 30.0)
    known = KnownTransactions(leaders, elsewhere.broker.transactions, catch_up)
    assert elsewhere.run(known.of([50])).keys() == {50}


def test_without_the_coordinators_topic_nothing_is_known(world: MemoryBroker) -> None:
    assert ids(world, None, 4711) == {}


def test_a_shard_that_this_broker_has_not_loaded_gives_no_answer(
    coordinators: MemoryBroker,
) -> None:
    coordinators.broker.transactions.unload_partition(0)
    with pytest.raises(KafkaError):
        ids(coordinators, None, 4711)


def test_a_fence_raises_the_epoch(coordinators: MemoryBroker) -> None:
    producer = init_producer(coordinators)
    known = known_to(coordinators)
    (state,) = coordinators.run(known.of([producer.producer_id])).values()
    coordinators.run(known.fence(state))
    (after,) = coordinators.run(known.of([producer.producer_id])).values()
    assert after.producer_epoch == producer.epoch + 1


def test_a_fence_goes_to_the_coordinator(elsewhere: MemoryBroker) -> None:
    other = OtherCoordinator()
    state = DescribedTransaction(
        transactional_id="theirs", transaction_timeout_ms=500, producer_id=50, producer_epoch=3
    )
    elsewhere.run(known_to(elsewhere, other).fence(state))
    (request,) = other.requests
    assert (request.transactional_id, request.transaction_timeout_ms) == ("theirs", 500)
    assert (request.producer_id, request.producer_epoch) == (50, 3)


def test_a_producer_that_has_begun_since_the_answer_is_not_fenced(
    coordinators: MemoryBroker,
) -> None:
    known = known_to(coordinators)
    (state,) = coordinators.run(known.of([init_producer(coordinators).producer_id])).values()
    producer = init_producer(coordinators)
    add_partition(coordinators, producer)
    coordinators.run(known.fence(state))
    (after,) = coordinators.run(known.of([producer.producer_id])).values()
    assert (after.producer_epoch, after.transaction_state) == (producer.epoch, "Ongoing")


def test_a_request_without_an_answer_gives_none(elsewhere: MemoryBroker) -> None:
    class Silent:
        async def request(self, message: Any, *, timeout_s: float) -> Any:
            raise PeerTimedOutError("silent")

    with pytest.raises(KafkaError):
        ids(elsewhere, Silent(), 4711)
