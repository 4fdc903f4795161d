"""The coordinator that verifies a transaction may be on another broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
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
from lakelog.protocol.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from lakelog.protocol.transactions import ListedTransaction as Listed
from lakelog.runtime.aio import AsyncioTasks
from lakelog.server.coordinators import verification
from lakelog.server.coordinators.leaders import PartitionLeaders
from lakelog.server.coordinators.verification import (
    ClusterVerification,
    Codes,
    KnownTransactions,
    VerificationQueue,
)
from lakelog.server.inter_broker.exchange import PeerTimedOutError
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


class SlowCoordinator:
    """Answers a request when it is released, in reverse order of its transactions."""

    def __init__(self) -> None:
        self.requests: list[list[str]] = []
        self.failure: Exception | None = None
        self.released = asyncio.Semaphore(0)

    async def ask(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        self.requests.append([each.transactional_id for each in request.transactions])
        await self.released.acquire()
        if self.failure is not None:
            raise self.failure
        results = [_result(each) for each in reversed(request.transactions)]
        return AddPartitionsToTxnResponse(results_by_transaction=results)


def _result(each: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnResult:
    code = E.NONE if each.producer_epoch == 0 else E.PRODUCER_FENCED
    rows = [AddPartitionsToTxnPartitionResult(partition_index=0, partition_error_code=code)]
    topic = AddPartitionsToTxnTopicResult(name="orders", results_by_partition=rows)
    return AddPartitionsToTxnResult(transactional_id=each.transactional_id, topic_results=[topic])


def transaction(name: str, epoch: int = 0) -> AddPartitionsToTxnTransaction:
    topics = [AddPartitionsToTxnTopic(name="orders", partitions=[0])]
    return AddPartitionsToTxnTransaction(transactional_id=name, producer_epoch=epoch, topics=topics)


async def submitted(
    coordinator: SlowCoordinator, *first: AddPartitionsToTxnTransaction
) -> tuple[VerificationQueue, list[asyncio.Future[Codes]]]:
    """Submit transactions one after another while the first one is under way."""
    queue = VerificationQueue(coordinator.ask, AsyncioTasks(asyncio.get_running_loop()), "2")
    futures = []
    for each in first:
        futures.append(queue.submit(each))
        await asyncio.sleep(0)
    return queue, futures


async def codes_of(futures: list[asyncio.Future[Codes]]) -> list[ErrorCode]:
    return [dict(await each)["orders", 0] for each in futures]


def test_waiting_transactions_share_the_next_request() -> None:
    async def scenario() -> None:
        coordinator = SlowCoordinator()
        names = [transaction(name, epoch=name == "c") for name in "abcd"]
        _, futures = await submitted(coordinator, *names)
        coordinator.released.release()
        coordinator.released.release()
        assert await codes_of(futures) == [E.NONE, E.NONE, E.PRODUCER_FENCED, E.NONE]
        assert coordinator.requests == [["a"], ["b", "c", "d"]]

    asyncio.run(scenario())


def test_a_request_names_a_transactional_id_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "BATCH_MAX", 2)

    async def scenario() -> None:
        coordinator = SlowCoordinator()
        names = [transaction("a"), transaction("b"), transaction("b", 1), transaction("c")]
        queue, futures = await submitted(coordinator, *names, transaction("d"))
        for _ in range(4):
            coordinator.released.release()
        expected = [E.NONE, E.NONE, E.PRODUCER_FENCED, E.NONE, E.NONE]
        assert await codes_of(futures) == expected
        assert coordinator.requests == [["a"], ["b", "c"], ["b", "d"]]
        assert await codes_of([queue.submit(transaction("e"))]) == [E.NONE]

    asyncio.run(scenario())


@pytest.mark.parametrize("failure", [KafkaError(E.REQUEST_TIMED_OUT), ValueError("a defect")])
def test_a_failed_request_ends_the_wait_of_all(failure: Exception) -> None:
    """A broker that hangs must not keep each of them for a time limit of its own."""

    async def scenario() -> None:
        coordinator = SlowCoordinator()
        coordinator.failure = failure
        queue, futures = await submitted(coordinator, transaction("a"), transaction("b"))
        sending: Any = queue._sending
        coordinator.released.release()
        if isinstance(failure, ValueError):
            with pytest.raises(ValueError, match="a defect"):
                await sending
        assert set(await codes_of(futures)) == {E.COORDINATOR_NOT_AVAILABLE}
        assert coordinator.requests == [["a"]]

    asyncio.run(scenario())
