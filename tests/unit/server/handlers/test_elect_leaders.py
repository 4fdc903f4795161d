from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.replicas import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from lakelog.server.handlers.elect_leaders import handle
from memory_broker import MemoryBroker

E = ErrorCode


def ask(
    world: MemoryBroker, wanted: dict[str, list[int]] | None, *, kind: int = 0, version: int = 2
) -> ElectLeadersResponse:
    topics = None
    if wanted is not None:
        topics = [
            TopicPartitions(topic=name, partitions=indexes) for name, indexes in wanted.items()
        ]
    request = ElectLeadersRequest(election_type=kind, topic_partitions=topics)
    return world.ask(handle, request, version)


def results(response: ElectLeadersResponse) -> dict[tuple[str, int], int]:
    return {
        (topic.topic, each.partition_id): each.error_code
        for topic in response.replica_election_results
        for each in topic.partition_result
    }


@pytest.mark.parametrize("kind", [0, 1])
def test_each_partition_has_its_result(world: MemoryBroker, kind: int) -> None:
    world.create("orders", 2)
    response = ask(world, {"orders": [0, 1, 9], "gone": [0]}, kind=kind)
    assert results(response) == {
        ("orders", 0): E.ELECTION_NOT_NEEDED,
        ("orders", 1): E.ELECTION_NOT_NEEDED,
        ("orders", 9): E.UNKNOWN_TOPIC_OR_PARTITION,
        ("gone", 0): E.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert response.error_code == E.NONE


def test_of_all_partitions_only_the_changed_ones_are_listed(world: MemoryBroker) -> None:
    world.create("orders", 2)
    assert results(ask(world, None)) == {}


def test_an_unknown_type_is_an_error_of_request_and_partitions(world: MemoryBroker) -> None:
    world.create("orders", 2)
    response = ask(world, {"orders": [0, 1]}, kind=9, version=1)
    assert response.error_code == E.INVALID_REQUEST
    assert results(response) == {("orders", 0): E.INVALID_REQUEST, ("orders", 1): E.INVALID_REQUEST}


def test_version_0_has_each_error_of_the_request_in_each_partition(world: MemoryBroker) -> None:
    world.create("orders")
    world.run(world.broker.metadata.close())
    assert results(ask(world, {"orders": [0]}, version=0)) == {
        ("orders", 0): E.BROKER_NOT_AVAILABLE
    }


@pytest.mark.parametrize(("name", "forgets"), [("__transaction_state", True), ("orders", False)])
def test_an_unclean_election_may_lose_epochs_of_producers(
    world: MemoryBroker, name: str, forgets: bool
) -> None:
    world.run(world.broker.producer_ids.next())
    before = world.broker.image.forgotten_epochs_end
    world.create(name)
    world.change_leader(name, -1, ())
    assert results(ask(world, {name: [0]}, kind=1)) == {(name, 0): E.NONE}
    assert (world.broker.image.forgotten_epochs_end > before) == forgets


def test_each_partition_needs_a_wanted_leader(world: MemoryBroker) -> None:
    world.create("orders", 2)
    topic = TopicPartitions(topic="orders", partitions=[0, 1], leaders=[1])
    response = world.ask(handle, ElectLeadersRequest(election_type=1, topic_partitions=[topic]), 2)
    assert response.error_code == E.INVALID_REQUEST
    topic.leaders.append(1)
    response = world.ask(handle, ElectLeadersRequest(election_type=1, topic_partitions=[topic]), 2)
    assert set(results(response).values()) == {E.ELECTION_NOT_NEEDED}
