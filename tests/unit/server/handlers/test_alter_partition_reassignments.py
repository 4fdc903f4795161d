from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.replicas import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from lakelog.server.handlers.alter_partition_reassignments import handle
from memory_broker import MemoryBroker

E = ErrorCode


def ask(
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
    return world.ask(handle, request, version)


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
def test_each_partition_has_its_result(
    world: MemoryBroker, index: int, replicas: list[int] | None, code: ErrorCode
) -> None:
    world.create("orders")
    response = ask(world, ("orders", index, replicas), ("gone", 0, [1]))
    assert codes(response) == [code, E.UNKNOWN_TOPIC_OR_PARTITION]
    assert response.error_code == E.NONE


def test_version_1_can_forbid_another_number_of_replicas(world: MemoryBroker) -> None:
    world.create("orders")
    response = ask(world, ("orders", 0, [1]), allow_change=False)
    assert not response.allow_replication_factor_change
    assert ask(world, ("orders", 0, [1]), version=0).allow_replication_factor_change


def test_a_broker_that_stops_answers_for_the_whole_request(world: MemoryBroker) -> None:
    world.create("orders")
    world.run(world.broker.metadata.close())
    response = ask(world, ("orders", 0, [1]))
    assert (response.error_code, response.responses) == (E.BROKER_NOT_AVAILABLE, [])
    assert response.error_message
