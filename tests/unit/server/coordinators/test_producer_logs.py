"""The coordinator asks each leader for the producers of a commit set."""

from __future__ import annotations

from typing import Any

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.transaction.requests import NO_SEQUENCE, WrittenTo
from lakelog.protocol.producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from lakelog.server.coordinators.leaders import PartitionLeaders
from lakelog.server.coordinators.producer_logs import ClusterProducerLogs
from lakelog.server.inter_broker.errors import PeerDisconnectedError
from memory_broker import MemoryBroker
from storage_kit import append_in_transaction

E = ErrorCode
OWN, OTHER = 1, 2


class OtherBroker:
    """Answers with one producer for each partition, or fails."""

    def __init__(
        self, state: ProducerState | None = None, code: ErrorCode = E.NONE, failure: Any = None
    ) -> None:
        self.state = state
        self.code = code
        self.failure = failure
        self.requests: list[DescribeProducersRequest] = []

    async def request(self, message: Any, *, timeout_s: float) -> Any:
        self.requests.append(message)
        if self.failure is not None:
            raise self.failure
        states = [] if self.state is None else [self.state]
        return DescribeProducersResponse(
            topics=[
                TopicResponse(
                    name=topic.name,
                    partitions=[
                        PartitionResponse(
                            partition_index=index, error_code=self.code, active_producers=states
                        )
                        for index in topic.partition_indexes
                    ],
                )
                for topic in message.topics
            ]
        )


def last(world: MemoryBroker, other: OtherBroker | None, *places: WrittenTo) -> list[int]:
    peers: dict[int, Any] = {OTHER: other}
    broker = world.broker
    leaders = PartitionLeaders(OWN, lambda: broker.image, peers.get, 30.0)
    logs = ClusterProducerLogs(leaders, broker.partitions, world.tasks)
    found = world.run(logs.last_sequences(places))
    return [found[place] for place in places]


def state(epoch: int, sequence: int, start: int) -> ProducerState:
    return ProducerState(
        producer_id=7,
        producer_epoch=epoch,
        last_sequence=sequence,
        coordinator_epoch=-1,
        current_txn_start_offset=start,
    )


def test_the_leaders_of_other_partitions_are_asked_for_these_producers_only(
    world: MemoryBroker,
) -> None:
    world.create("orders", 3)
    for index in (0, 2):
        world.change_leader("orders", OTHER, (OTHER,), index=index)
    other = OtherBroker(state(3, 41, 10))
    places = [WrittenTo("orders", index, 7, 3) for index in (2, 1, 0)]
    assert last(world, other, *places) == [41, NO_SEQUENCE, 41]
    (request,) = other.requests
    assert request.producer_ids == [7]
    assert [(each.name, each.partition_indexes) for each in request.topics] == [("orders", [0, 2])]


@pytest.mark.parametrize("found", [None, state(2, 41, 10), state(3, 41, -1)])
def test_another_epoch_or_an_ended_transaction_does_not_count(
    world: MemoryBroker, found: ProducerState | None
) -> None:
    world.create("orders", 1)
    world.change_leader("orders", OTHER, (OTHER,))
    assert last(world, OtherBroker(found), WrittenTo("orders", 0, 7, 3)) == [NO_SEQUENCE]


def test_this_broker_reads_its_own_partitions(world: MemoryBroker) -> None:
    world.create("orders", 1)
    world.append("orders", producer=(6, 2, 0), count=3)
    now = world.clock.wall_ms()
    append_in_transaction(world.partition("orders").log, (7, 3, 0), now_ms=now)
    places = [WrittenTo("orders", 0, *each) for each in ((7, 3), (7, 4), (6, 2), (8, 0))]
    assert last(world, None, *places) == [0, NO_SEQUENCE, NO_SEQUENCE, NO_SEQUENCE]


def test_a_deleted_topic_has_no_records(world: MemoryBroker) -> None:
    assert last(world, None, WrittenTo("gone", 0, 7, 3)) == [NO_SEQUENCE]


@pytest.mark.parametrize(
    ("leader", "other", "code"),
    [
        (OTHER, OtherBroker(failure=PeerDisconnectedError("lost")), E.NETWORK_EXCEPTION),
        (OTHER, OtherBroker(code=E.NOT_LEADER_OR_FOLLOWER), E.NOT_LEADER_OR_FOLLOWER),
        (OTHER, None, E.BROKER_NOT_AVAILABLE),
        (-1, OtherBroker(), E.BROKER_NOT_AVAILABLE),
    ],
    ids=["lost", "moved", "no address", "no leader"],
)
def test_without_an_answer_nothing_is_known(
    world: MemoryBroker, leader: int, other: OtherBroker | None, code: ErrorCode
) -> None:
    world.create("orders", 1)
    world.change_leader("orders", leader, (OTHER,))
    with pytest.raises(KafkaError) as raised:
        last(world, other, WrittenTo("orders", 0, 7, 3))
    assert raised.value.code is code
