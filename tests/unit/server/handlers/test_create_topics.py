from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.metadata.describe_configs import ConfigSource
from lakelog.metadata.errors import MetadataError
from lakelog.metadata.store.api import EntryOutcome
from lakelog.protocol.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from lakelog.server.handlers.create_topics import handle
from memory_broker import MemoryBroker
from memory_metadata import FAILED_CHANGES

E = ErrorCode


def ask(
    world: MemoryBroker, *topics: CreatableTopic, version: int = 7, validate_only: bool = False
) -> list[CreatableTopicResult]:
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=1000, validate_only=validate_only)
    return world.ask(handle, request, version).topics


def topic(
    name: str = "orders",
    partitions: int = 1,
    replication_factor: int = 1,
    *,
    assignments: dict[int, list[int]] | None = None,
    **configs: str | None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in (assignments or {}).items()
        ],
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )


def test_each_topic_is_created_or_rejected_on_its_own(world: MemoryBroker) -> None:
    world.create("orders")
    results = ask(world, topic("orders"), topic("a b"), topic("clicks", 2))
    assert [result.error_code for result in results] == [
        E.TOPIC_ALREADY_EXISTS,
        E.INVALID_TOPIC_EXCEPTION,
        E.NONE,
    ]
    assert world.partition("clicks", 1).log.log_end_offset == 0
    assert results[2].topic_id == world.broker.topics.topic_id("clicks")


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (topic(""), E.INVALID_TOPIC_EXCEPTION),
        (topic("n" * 250), E.INVALID_TOPIC_EXCEPTION),
        (topic("."), E.INVALID_TOPIC_EXCEPTION),
        (topic(partitions=0), E.INVALID_PARTITIONS),
        (topic(partitions=-2), E.INVALID_PARTITIONS),
        (topic(replication_factor=0), E.INVALID_REPLICATION_FACTOR),
        (topic(replication_factor=2), E.INVALID_REPLICATION_FACTOR),
        (topic(assignments={0: [1]}), E.INVALID_REQUEST),
        (
            topic(partitions=-1, replication_factor=-1, assignments={1: [1]}),
            E.INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            topic(partitions=-1, replication_factor=-1, assignments={0: [9]}),
            E.INVALID_REPLICA_ASSIGNMENT,
        ),
        (topic(no_such_key="1"), E.INVALID_CONFIG),
        (topic(retention_ms="soon"), E.INVALID_CONFIG),
        (topic(retention_ms=None), E.INVALID_CONFIG),
    ],
)
def test_a_bad_topic_has_its_error_and_a_message(
    world: MemoryBroker, wanted: CreatableTopic, code: ErrorCode
) -> None:
    (result,) = ask(world, wanted)
    assert (result.error_code, result.topic_id) == (code, bytes(16))
    assert result.error_message
    assert not list(world.broker.image.topics)


def test_a_name_that_a_request_repeats_is_rejected(world: MemoryBroker) -> None:
    assert {result.error_code for result in ask(world, topic(), topic())} == {E.INVALID_REQUEST}


def test_validation_creates_nothing(world: MemoryBroker) -> None:
    (result,) = ask(world, topic(partitions=3), validate_only=True)
    assert (result.error_code, result.num_partitions) == (E.NONE, 3)
    assert world.broker.topics.topic_id("orders") is None


def test_counts_of_minus_one_are_the_broker_s_defaults() -> None:
    with MemoryBroker(num_partitions="4") as world:
        (result,) = ask(world, topic(partitions=-1, replication_factor=-1))
    assert (result.num_partitions, result.replication_factor) == (4, 1)


def test_from_version_5_on_the_response_describes_the_topic(world: MemoryBroker) -> None:
    (old,) = ask(world, topic("old"), version=4)
    assert (old.num_partitions, old.replication_factor, old.configs) == (-1, -1, [])
    (new,) = ask(world, topic("new", 2, retention_ms="5000"), version=5)
    assert (new.num_partitions, new.replication_factor) == (2, 1)
    found = {config.name: config for config in new.configs or ()}
    assert found["retention.ms"].value == "5000"
    assert found["retention.ms"].config_source == ConfigSource.TOPIC
    assert found["segment.bytes"].config_source == ConfigSource.DEFAULT


def test_the_id_of_a_topic_came_with_version_7(world: MemoryBroker) -> None:
    assert ask(world, topic("old"), version=6)[0].topic_id == bytes(16)
    assert ask(world, topic("new"), version=7)[0].topic_id != bytes(16)


def test_a_coordinator_s_topic_is_compacted(world: MemoryBroker) -> None:
    """Retention would delete committed offsets."""
    (result,) = ask(world, topic("__consumer_offsets", -1, -1))
    found = {config.name: config.value for config in result.configs or ()}
    assert (result.num_partitions, found["cleanup.policy"]) == (1, "compact")


@pytest.mark.parametrize(("fault", "code"), FAILED_CHANGES)
def test_a_failed_change_fails_every_topic(
    world: MemoryBroker, fault: MetadataError | EntryOutcome, code: ErrorCode
) -> None:
    world.metadata.fault = fault
    results = ask(world, topic("a"), topic("b"))
    assert [result.error_code for result in results] == [code, code]


def test_without_space_for_its_log_a_topic_is_not_created(world: MemoryBroker) -> None:
    world.disk.capacity = 0
    (result,) = ask(world, topic())
    assert result.error_code == E.KAFKA_STORAGE_ERROR
    assert world.broker.topics.topic_id("orders") is None
