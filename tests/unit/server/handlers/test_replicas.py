from __future__ import annotations

import re

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.replicas import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from lakelog.server.handlers.replicas import (
    alter_partition_reassignments,
    describe_log_dirs,
    elect_leaders,
    list_partition_reassignments,
)
from memory_broker import DATA, MemoryBroker

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
    return world.ask(elect_leaders, request, version)


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
    response = world.ask(
        elect_leaders, ElectLeadersRequest(election_type=1, topic_partitions=[topic]), 2
    )
    assert response.error_code == E.INVALID_REQUEST
    topic.leaders.append(1)
    response = world.ask(
        elect_leaders, ElectLeadersRequest(election_type=1, topic_partitions=[topic]), 2
    )
    assert set(results(response).values()) == {E.ELECTION_NOT_NEEDED}


def ask_moves(
    world: MemoryBroker,
    *moves: tuple[str, int, list[int] | None],
    version: int = 1,
    allow_change: bool = True,
) -> AlterPartitionReassignmentsResponse:
    request = AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=allow_change,
        topics=[
            ReassignableTopic(
                name=name,
                partitions=[ReassignablePartition(partition_index=index, replicas=replicas)],
            )
            for name, index, replicas in moves
        ],
    )
    return world.ask(alter_partition_reassignments, request, version)


def codes(response: AlterPartitionReassignmentsResponse) -> list[int]:
    return [each.error_code for topic in response.responses for each in topic.partitions]


@pytest.mark.parametrize(
    ("index", "replicas", "code"),
    [
        (0, [1], E.NONE),
        (0, [], E.INVALID_REPLICA_ASSIGNMENT),
        (0, [1, 1], E.INVALID_REPLICA_ASSIGNMENT),
        (0, [9], E.INVALID_REPLICA_ASSIGNMENT),
        (0, [-1], E.INVALID_REPLICA_ASSIGNMENT),
        (0, None, E.NO_REASSIGNMENT_IN_PROGRESS),
        (9, [1], E.UNKNOWN_TOPIC_OR_PARTITION),
        (9, None, E.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_each_move_has_its_result(
    world: MemoryBroker, index: int, replicas: list[int] | None, code: ErrorCode
) -> None:
    world.create("orders")
    response = ask_moves(world, ("orders", index, replicas), ("gone", 0, [1]))
    assert codes(response) == [code, E.UNKNOWN_TOPIC_OR_PARTITION]
    assert response.error_code == E.NONE


def test_version_1_can_forbid_another_number_of_replicas(world: MemoryBroker) -> None:
    world.create("orders")
    response = ask_moves(world, ("orders", 0, [1]), allow_change=False)
    assert not response.allow_replication_factor_change
    assert ask_moves(world, ("orders", 0, [1]), version=0).allow_replication_factor_change


def test_a_broker_that_stops_answers_for_the_whole_request(world: MemoryBroker) -> None:
    world.create("orders")
    world.run(world.broker.metadata.close())
    response = ask_moves(world, ("orders", 0, [1]))
    assert (response.error_code, response.responses) == (E.BROKER_NOT_AVAILABLE, [])
    assert response.error_message


@pytest.mark.parametrize("names", [None, [], ["orders"], ["gone"]])
def test_no_reassignment_is_ongoing(world: MemoryBroker, names: list[str] | None) -> None:
    world.create("orders")
    topics = None
    if names is not None:
        topics = [
            ListPartitionReassignmentsTopics(name=name, partition_indexes=[0]) for name in names
        ]
    response = world.ask(
        list_partition_reassignments, ListPartitionReassignmentsRequest(topics=topics), 0
    )
    assert (response.error_code, response.error_message) == (ErrorCode.NONE, None)
    assert response.topics == []


def ask_sizes(
    world: MemoryBroker, wanted: dict[str, list[int]] | None, version: int = 4
) -> DescribeLogDirsResult:
    topics = None
    if wanted is not None:
        topics = [
            DescribableLogDirTopic(topic=name, partitions=indexes)
            for name, indexes in wanted.items()
        ]
    (result,) = world.ask(describe_log_dirs, DescribeLogDirsRequest(topics=topics), version).results
    assert (result.error_code, result.log_dir) == (0, str(DATA))
    return result


def sizes(result: DescribeLogDirsResult) -> dict[tuple[str, int], int]:
    return {
        (topic.name, each.partition_index): each.partition_size
        for topic in result.topics
        for each in topic.partitions
    }


def test_each_partition_has_the_size_of_its_log(world: MemoryBroker) -> None:
    world.create("orders", 2)
    world.append("orders", count=10)
    found = sizes(ask_sizes(world, None))
    assert found == {("orders", 0): world.partition("orders").log.size, ("orders", 1): 0}
    assert found["orders", 0] > 0


@pytest.mark.parametrize("wanted", [{"orders": [1, 9], "gone": [0]}, {"orders": [1]}])
def test_only_existing_ones_of_the_named_partitions_are_listed(
    world: MemoryBroker, wanted: dict[str, list[int]]
) -> None:
    world.create("orders", 2)
    assert sizes(ask_sizes(world, wanted)) == {("orders", 1): 0}


def test_the_space_of_the_folder_came_with_version_4(world: MemoryBroker) -> None:
    world.disk.capacity = 10_000_000
    new, old = ask_sizes(world, None, 4), ask_sizes(world, None, 3)
    assert (new.total_bytes, old.total_bytes, old.usable_bytes) == (10_000_000, -1, -1)
    assert 0 < new.usable_bytes < new.total_bytes


def test_a_full_folder_has_its_problem() -> None:
    with MemoryBroker() as world:
        assert ask_sizes(world, None).problem == ""
        world.broker.shortages.note_full()
        assert "delete topics or records" in ask_sizes(world, None).problem


def test_a_folder_with_partitions_offline_names_them_with_its_other_problems() -> None:
    with MemoryBroker() as world:
        world.create("orders", 2)
        world.partition("orders").take_offline("a bad sector")
        assert ask_sizes(world, {}).problem == "1 offline: orders-0 (a bad sector)"
        world.broker.shortages.note_full()
        assert re.match("1 offline: .*; .*delete topics or records", ask_sizes(world, {}).problem)
