from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.metadata.errors import MetadataError
from lakelog.metadata.store.api import EntryOutcome
from lakelog.protocol.topics import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from lakelog.server.handlers.create_partitions import handle
from memory_broker import MemoryBroker
from memory_metadata import FAILED_CHANGES

E = ErrorCode


def topic(
    count: int, brokers: list[list[int]] | None = None, name: str = "orders"
) -> CreatePartitionsTopic:
    assignments = None
    if brokers is not None:
        assignments = [CreatePartitionsAssignment(broker_ids=ids) for ids in brokers]
    return CreatePartitionsTopic(name=name, count=count, assignments=assignments)


def codes(
    world: MemoryBroker, *topics: CreatePartitionsTopic, validate_only: bool = False
) -> list[int]:
    request = CreatePartitionsRequest(topics=list(topics), validate_only=validate_only)
    return [result.error_code for result in world.ask(handle, request, 3).results]


def test_a_topic_grows(world: MemoryBroker) -> None:
    world.create("orders", 2)
    assert codes(world, topic(3), topic(1, name="clicks")) == [
        E.NONE,
        E.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert world.partition("orders", 2).is_online


def test_validation_changes_nothing(world: MemoryBroker) -> None:
    world.create("orders")
    assert codes(world, topic(3, [[1], [1]]), validate_only=True) == [E.NONE]
    assert world.broker.topics.partition_count("orders") == 1


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (topic(2), E.INVALID_PARTITIONS),
        (topic(1), E.INVALID_PARTITIONS),
        (topic(-1), E.INVALID_PARTITIONS),
        (topic(4, [[1]]), E.INVALID_REPLICA_ASSIGNMENT),
        (topic(3, [[9]]), E.INVALID_REPLICA_ASSIGNMENT),
        (topic(3, [[1, 1]]), E.INVALID_REPLICA_ASSIGNMENT),
        (topic(60, name="__consumer_offsets"), E.INVALID_REQUEST),
    ],
)
def test_a_bad_number_or_assignment_changes_nothing(
    world: MemoryBroker, wanted: CreatePartitionsTopic, code: ErrorCode
) -> None:
    world.create("orders", 2)
    world.run(world.broker.topics.ensure_group_topic())
    assert codes(world, wanted) == [code]
    assert world.broker.topics.partition_count("orders") == 2
    assert world.broker.topics.partition_count("__consumer_offsets") == 1


@pytest.mark.parametrize(("fault", "code"), FAILED_CHANGES)
def test_a_failed_change_fails_every_topic(
    world: MemoryBroker, fault: MetadataError | EntryOutcome, code: ErrorCode
) -> None:
    world.create("orders")
    world.metadata.fault = fault
    assert codes(world, topic(2), topic(2, name="clicks")) == [code, code]


def test_partitions_without_space_for_their_logs_are_not_created(world: MemoryBroker) -> None:
    world.create("orders")
    world.disk.capacity = world.disk.used
    assert codes(world, topic(2)) == [E.KAFKA_STORAGE_ERROR]
    assert world.broker.topics.partition_count("orders") == 1
