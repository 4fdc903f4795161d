from __future__ import annotations

import errno
import logging

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
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeletableTopicResult,
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from lakelog.server.handlers.topics import (
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
)
from memory_broker import MemoryBroker
from memory_metadata import FAILED_CHANGES

E = ErrorCode


def ask(
    world: MemoryBroker, *topics: CreatableTopic, version: int = 7, validate_only: bool = False
) -> list[CreatableTopicResult]:
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=1000, validate_only=validate_only)
    return world.ask(create_topics, request, version).topics


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


def increase(
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
    return [result.error_code for result in world.ask(create_partitions, request, 3).results]


def test_a_topic_grows(world: MemoryBroker) -> None:
    world.create("orders", 2)
    assert codes(world, increase(3), increase(1, name="clicks")) == [
        E.NONE,
        E.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert world.partition("orders", 2).is_online


def test_validation_changes_nothing(world: MemoryBroker) -> None:
    world.create("orders")
    assert codes(world, increase(3, [[1], [1]]), validate_only=True) == [E.NONE]
    assert world.broker.topics.partition_count("orders") == 1


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (increase(2), E.INVALID_PARTITIONS),
        (increase(1), E.INVALID_PARTITIONS),
        (increase(-1), E.INVALID_PARTITIONS),
        (increase(4, [[1]]), E.INVALID_REPLICA_ASSIGNMENT),
        (increase(3, [[9]]), E.INVALID_REPLICA_ASSIGNMENT),
        (increase(3, [[1, 1]]), E.INVALID_REPLICA_ASSIGNMENT),
        (increase(60, name="__consumer_offsets"), E.INVALID_REQUEST),
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
def test_a_failed_increase_fails_every_topic(
    world: MemoryBroker, fault: MetadataError | EntryOutcome, code: ErrorCode
) -> None:
    world.create("orders")
    world.metadata.fault = fault
    assert codes(world, increase(2), increase(2, name="clicks")) == [code, code]


def test_partitions_without_space_for_their_logs_are_not_created(world: MemoryBroker) -> None:
    world.create("orders")
    world.disk.capacity = world.disk.used
    assert codes(world, increase(2)) == [E.KAFKA_STORAGE_ERROR]
    assert world.broker.topics.partition_count("orders") == 1


UNKNOWN_ID = b"\x11" * 16


def by_name(world: MemoryBroker, *names: str, version: int = 5) -> list[DeletableTopicResult]:
    return world.ask(delete_topics, DeleteTopicsRequest(topic_names=list(names)), version).responses


def ask_deletion(world: MemoryBroker, *topics: DeleteTopicState) -> list[DeletableTopicResult]:
    return world.ask(delete_topics, DeleteTopicsRequest(topics=list(topics)), 6).responses


def test_each_topic_is_deleted_or_unknown(world: MemoryBroker) -> None:
    world.create("orders")
    results = by_name(world, "orders", "clicks")
    assert [(result.name, result.error_code) for result in results] == [
        ("orders", E.NONE),
        ("clicks", E.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert world.broker.partitions.get("orders", 0) is None


def test_from_version_6_on_a_topic_has_a_name_or_an_id(world: MemoryBroker) -> None:
    topic_id = world.create("orders")
    world.create("clicks")
    results = ask_deletion(
        world, DeleteTopicState(topic_id=topic_id), DeleteTopicState(name="clicks")
    )
    assert [result.error_code for result in results] == [E.NONE, E.NONE]
    assert (results[0].name, results[0].topic_id) == ("orders", topic_id)
    assert not list(world.broker.image.topics)


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (DeleteTopicState(topic_id=UNKNOWN_ID), E.UNKNOWN_TOPIC_ID),
        (DeleteTopicState(name="gone"), E.UNKNOWN_TOPIC_OR_PARTITION),
        (DeleteTopicState(), E.INVALID_REQUEST),
        (DeleteTopicState(name="orders", topic_id=UNKNOWN_ID), E.INVALID_REQUEST),
    ],
)
def test_a_bad_reference_has_its_error(
    world: MemoryBroker, topic: DeleteTopicState, code: ErrorCode
) -> None:
    world.create("orders")
    assert [result.error_code for result in ask_deletion(world, topic)] == [code]
    assert world.partition("orders").is_online


def test_a_topic_named_twice_stays(world: MemoryBroker) -> None:
    topic_id = world.create("orders")
    topic = DeleteTopicState(topic_id=topic_id)
    assert {result.error_code for result in ask_deletion(world, topic, topic)} == {
        E.INVALID_REQUEST
    }
    assert world.partition("orders").is_online


@pytest.mark.parametrize(
    ("version", "code"), [(2, E.INVALID_REQUEST), (3, E.TOPIC_DELETION_DISABLED)]
)
def test_disabled_deletion_has_a_code_of_its_own_from_version_3_on(
    version: int, code: ErrorCode
) -> None:
    with MemoryBroker(delete_topic_enable="false") as world:
        world.create("orders")
        (result,) = by_name(world, "orders", version=version)
        assert result.error_code == code
        assert world.partition("orders").is_online


@pytest.mark.parametrize(("fault", "code"), FAILED_CHANGES)
def test_a_failed_deletion_fails_every_topic(
    world: MemoryBroker, fault: MetadataError | EntryOutcome, code: ErrorCode
) -> None:
    names = ["orders", "clicks"]
    for name in names:
        world.create(name)
    world.metadata.fault = fault
    assert [result.error_code for result in by_name(world, *names)] == [code, code]


def ask_records(
    world: MemoryBroker, *offsets: int, topic: str = "orders", first: int = 0
) -> list[DeleteRecordsPartitionResult]:
    entries = [
        DeleteRecordsPartition(partition_index=index, offset=offset)
        for index, offset in enumerate(offsets, first)
    ]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=entries)])
    return world.ask(delete_records, request, 2).topics[0].partitions


@pytest.fixture
def filled(world: MemoryBroker) -> MemoryBroker:
    """`orders` with two partitions of five records."""
    world.create("orders", 2)
    for index in range(2):
        world.append("orders", index, count=5)
    return world


def test_each_partition_begins_at_its_offset(filled: MemoryBroker) -> None:
    assert [(each.error_code, each.low_watermark) for each in ask_records(filled, 2, -1)] == [
        (0, 2),
        (0, 5),
    ]
    assert filled.partition("orders", 1).log.log_start_offset == 5


def test_a_start_offset_never_falls(filled: MemoryBroker) -> None:
    ask_records(filled, 3)
    assert [each.low_watermark for each in ask_records(filled, 1)] == [3]


@pytest.mark.parametrize(
    ("offset", "code"), [(6, E.OFFSET_OUT_OF_RANGE), (-2, E.OFFSET_OUT_OF_RANGE)]
)
def test_an_offset_beyond_the_log_deletes_nothing_there(
    filled: MemoryBroker, offset: int, code: ErrorCode
) -> None:
    bad, good = ask_records(filled, offset, 2)
    assert (bad.error_code, bad.low_watermark) == (code, -1)
    assert (good.error_code, good.low_watermark) == (E.NONE, 2)
    assert filled.partition("orders").log.log_start_offset == 0


def test_only_records_of_existing_topics_of_clients_are_deleted(filled: MemoryBroker) -> None:
    filled.run(filled.broker.topics.ensure_group_topic())
    filled.create("keys", 1, cleanup_policy="compact")
    codes = {
        topic: ask_records(filled, -1, topic=topic, first=first)[0].error_code
        for topic, first in [("gone", 0), ("orders", 9), ("__consumer_offsets", 0), ("keys", 0)]
    }
    assert codes == {
        "gone": E.UNKNOWN_TOPIC_OR_PARTITION,
        "orders": E.UNKNOWN_TOPIC_OR_PARTITION,
        "__consumer_offsets": E.INVALID_TOPIC_EXCEPTION,
        "keys": E.POLICY_VIOLATION,
    }


def test_a_deletion_that_is_not_durable_is_an_error_until_it_is(
    filled: MemoryBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """After a kill the records would be there again."""
    caplog.set_level(logging.INFO, "lakelog")
    filled.disk.fail("write", errno.EIO)
    (result,) = ask_records(filled, 2)
    assert (result.error_code, result.low_watermark) == (E.KAFKA_STORAGE_ERROR, -1)
    assert "records_deleted" not in _events(caplog)
    filled.disk.forget_faults()
    (result,) = ask_records(filled, 2)
    assert (result.error_code, result.low_watermark) == (E.NONE, 2)
    assert "records_deleted" in _events(caplog)
    assert not filled.broker.noted_starts


def _events(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [str(getattr(record, "event", "")) for record in caplog.records]


def test_records_without_an_archive_need_force(world: MemoryBroker) -> None:
    world.create("orders", 1, table_enable="true")
    world.append("orders", 0, count=5)
    (refused,) = ask_records(world, 3)
    assert refused.error_code == E.POLICY_VIOLATION

    topics = [
        DeleteRecordsTopic(
            name="orders", partitions=[DeleteRecordsPartition(partition_index=0, offset=3)]
        )
    ]
    request = DeleteRecordsRequest(topics=topics, force=True)
    answer = world.ask(delete_records, request, 2)
    assert [each.low_watermark for each in answer.topics[0].partitions] == [3]
