from __future__ import annotations

from typing import Any

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.transaction.endings import Marker
from lakelog.protocol.connections import ApiVersionsRequest
from lakelog.protocol.transactions import (
    EndTxnRequest,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from lakelog.server.coordinators.leaders import ClusterMarkers, PartitionLeaders
from lakelog.server.handlers.transactions import end_txn
from lakelog.server.inter_broker.exchange import PeerDisconnectedError, PeerTimedOutError
from memory_broker import MemoryBroker
from memory_clients import add_partition, init_producer

OWN, OTHER = 1, 2


class LimitedBroker:
    """Answers each request with its time limit."""

    async def request(self, message: object, *, timeout_s: float) -> float:
        return timeout_s


def leaders_of(world: MemoryBroker) -> PartitionLeaders:
    peers: dict[int, Any] = {OTHER: LimitedBroker()}
    return PartitionLeaders(OWN, lambda: world.broker.image, peers.get, 30.0)


def test_the_image_names_the_leader(world: MemoryBroker) -> None:
    world.create("orders", 3)
    world.change_leader("orders", OTHER, (OTHER,), index=1)
    world.change_leader("orders", -1, (OTHER,), index=2)
    leaders = leaders_of(world)
    assert [leaders.of("orders", index) for index in range(4)] == [OWN, OTHER, -1, None]
    assert leaders.of("gone", 0) is None


def test_partitions_are_grouped_by_their_leaders(world: MemoryBroker) -> None:
    world.create("orders", 3)
    before = world.broker.image.partition("orders", 1)
    assert before is not None
    world.change_leader("orders", OTHER, (OTHER,), index=1, raises=2)
    world.change_leader("orders", -1, (OTHER,), index=2)
    epoch = before.leader_epoch
    expected = {OWN: {0: epoch}, OTHER: {1: epoch + 2}, -1: {2: epoch + 1}}
    assert leaders_of(world).led("orders") == expected
    assert leaders_of(world).led("gone") == {}


def test_a_request_goes_to_a_leader_with_an_address(world: MemoryBroker) -> None:
    leaders, request = leaders_of(world), ApiVersionsRequest()
    assert world.run(leaders.request(OTHER, request)) == 30.0
    for without_address in (-1, 3):
        with pytest.raises(KafkaError) as raised:
            world.run(leaders.request(without_address, request))
        assert raised.value.code is ErrorCode.BROKER_NOT_AVAILABLE


E = ErrorCode


class OtherBroker:
    """Answers each marker with `code`, or fails a request."""

    def __init__(self, code: ErrorCode = E.NONE, failure: KafkaError | None = None) -> None:
        self.code = code
        self.failure = failure
        self.requests: list[WriteTxnMarkersRequest] = []

    async def request(self, message: Any, *, timeout_s: float) -> Any:
        self.requests.append(message)
        if self.failure is not None:
            raise self.failure
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(
                                    partition_index=index, error_code=self.code
                                )
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in message.markers
            ]
        )


def marker(topic: str, index: int) -> Marker:
    return Marker(topic, index, 7, 0, True, 3, 2, 9)


def written(
    world: MemoryBroker, other: OtherBroker | None, *markers: Marker
) -> list[tuple[str, int, ErrorCode]]:
    """Write the markers; return topic, partition and code of each."""
    peers: dict[int, Any] = {OTHER: other}
    broker = world.broker
    leaders = PartitionLeaders(OWN, lambda: broker.image, peers.get, 30.0)
    codes = world.run(ClusterMarkers(leaders, broker.markers, world.tasks).write(markers))
    return [(each.topic, each.partition, code) for each, code in zip(markers, codes, strict=True)]


def test_each_leader_gets_its_markers(world: MemoryBroker) -> None:
    world.create("orders", 4)
    world.create("clicks", 1)
    for topic, index in (("orders", 1), ("orders", 3), ("clicks", 0)):
        world.change_leader(topic, OTHER, (OTHER,), index=index)
    other = OtherBroker()
    markers = [marker("orders", index) for index in (3, 0, 1)] + [marker("clicks", 0)]
    assert {code for *_, code in written(world, other, *markers)} == {E.NONE}
    (request,) = other.requests
    (sent,) = request.markers
    assert (sent.producer_id, sent.producer_epoch, sent.transaction_result) == (7, 0, True)
    assert (sent.coordinator_epoch, sent.transaction_version, sent.decision) == (3, 2, 9)
    asked_partitions = [(topic.name, topic.partition_indexes) for topic in sent.topics]
    assert asked_partitions == [("clicks", [0]), ("orders", [1, 3])]
    assert world.partition("orders", 0).log.log_end_offset == 1


@pytest.mark.parametrize("code", [E.UNKNOWN_TOPIC_OR_PARTITION, E.UNKNOWN_TOPIC_ID])
def test_a_leader_that_does_not_know_a_partition_settles_nothing(
    world: MemoryBroker, code: ErrorCode
) -> None:
    """Its image may be older than the topic (KAFKA-5202, KAFKA-5610)."""
    world.create("orders", 1)
    world.change_leader("orders", OTHER, (OTHER,))
    ((*_, found),) = written(world, OtherBroker(code), marker("orders", 0))
    assert found is E.NOT_LEADER_OR_FOLLOWER


def test_a_partition_that_this_broker_s_image_does_not_have_needs_no_marker(
    world: MemoryBroker,
) -> None:
    world.create("orders", 1)
    other = OtherBroker()
    assert written(world, other, marker("orders", 1), marker("gone", 0)) == [
        ("orders", 1, E.UNKNOWN_TOPIC_OR_PARTITION),
        ("gone", 0, E.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert other.requests == []


@pytest.mark.parametrize(
    ("leader", "other", "code"),
    [
        (OTHER, OtherBroker(failure=PeerDisconnectedError("lost")), E.NETWORK_EXCEPTION),
        (OTHER, OtherBroker(failure=PeerTimedOutError("late")), E.REQUEST_TIMED_OUT),
        (OTHER, OtherBroker(E.NOT_ENOUGH_REPLICAS), E.NOT_ENOUGH_REPLICAS),
        (OTHER, None, E.BROKER_NOT_AVAILABLE),
        (-1, OtherBroker(), E.BROKER_NOT_AVAILABLE),
    ],
    ids=["lost", "late", "few replicas", "no address", "no leader"],
)
def test_what_fails_is_not_settled(
    world: MemoryBroker, leader: int, other: OtherBroker | None, code: ErrorCode
) -> None:
    world.create("orders", 2)
    world.change_leader("orders", leader, (OTHER,))
    found = written(world, other, marker("orders", 0), marker("orders", 1))
    assert found == [("orders", 0, code), ("orders", 1, E.NONE)]


def test_a_marker_is_repeated_until_its_leader_has_it(
    coordinators: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = coordinators
    other: Any = OtherBroker(E.UNKNOWN_TOPIC_OR_PARTITION)
    monkeypatch.setattr(world._server._control.peers.peers, "get", lambda node_id: other)
    world.change_leader("orders", OTHER, (OTHER,))
    producer = init_producer(world)
    add_partition(world, producer)
    request = EndTxnRequest(
        transactional_id="id",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=True,
    )
    assert world.ask(end_txn, request, 4).error_code == E.NONE
    world.pass_time(60)
    count = len(other.requests)
    assert 20 < count < 100, "with pauses of up to a second"
    assert state(world) == "PrepareCommit"
    other.code = E.NONE
    world.pass_time(5)
    assert state(world) == "CompleteCommit"
    assert len(other.requests) <= count + 2


def test_a_transaction_of_a_deleted_topic_is_complete(
    coordinators: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = coordinators
    other: Any = OtherBroker(E.UNKNOWN_TOPIC_OR_PARTITION)
    monkeypatch.setattr(world._server._control.peers.peers, "get", lambda node_id: other)
    world.change_leader("orders", OTHER, (OTHER,))
    producer = init_producer(world)
    add_partition(world, producer)
    request = EndTxnRequest(
        transactional_id="id",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=False,
    )
    assert world.ask(end_txn, request, 4).error_code == E.NONE
    world.pass_time(60)
    assert state(world) == "PrepareAbort"
    world.delete("orders")
    world.pass_time(5)
    assert state(world) == "CompleteAbort"


def state(world: MemoryBroker) -> str:
    """Return the state of the transactional id `id`."""
    (shard,) = world.broker.transactions._host.active_shards()
    return str(shard.describe("id").transaction_state)
