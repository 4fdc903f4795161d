from __future__ import annotations

import logging
from typing import Any

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.controller.configs import Replacement, plan_replace_configs
from lakelog.metadata.controller.topics import MorePartitions
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import (
    BrokerFenced,
    BrokerLost,
    BrokerRecord,
    BrokerUnfenced,
    ClusterRecord,
    PartitionRecord,
    Record,
    ResourceType,
    TopicRecord,
)
from lakelog.server.event_log import LASTS_S, FetchFailures, log_elections, log_leaderless
from memory_broker import MemoryBroker


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "lakelog.server.event_log")
    return caplog


def events(log: pytest.LogCaptureFixture) -> list[tuple[str, dict[str, Any]]]:
    """Return the events since the last call, with their fields."""
    found = [(vars(each)["event"], vars(each)["fields"]) for each in log.records]
    log.clear()
    return found


def configure(world: MemoryBroker, kind: int, name: str, **values: str) -> None:
    pairs = [(key.replace("_", "."), value) for key, value in values.items()]
    wanted = [Replacement(kind, name, pairs)]
    world.run(
        world.broker.metadata.submit(
            lambda image: plan_replace_configs(
                image, wanted, broker=world.broker.static_config, validate_only=False
            )
        )
    )


def test_topics_are_created_grow_and_are_deleted(
    world: MemoryBroker, log: pytest.LogCaptureFixture
) -> None:
    world.create("orders", retention_ms="7")
    ((name, fields),) = events(log)
    assert (name, fields["topic"], fields["partitions"]) == ("topic_created", "orders", 1)
    assert fields["configs"] == {"retention.ms": "7"}
    world.run(world.broker.topics.add_partitions([MorePartitions("orders", 3, None)]))
    assert events(log) == [
        ("partitions_added", {"topic": "orders", "partitions": 3, "partitions_before": 1})
    ]
    world.delete("orders")
    assert [name for name, _ in events(log)] == ["topic_deleted"]


def test_changed_settings_are_shown(world: MemoryBroker, log: pytest.LogCaptureFixture) -> None:
    world.create("orders", retention_ms="7")
    events(log)
    configure(world, ResourceType.TOPIC, "orders", segment_bytes="2000000")
    ((name, fields),) = events(log)
    assert (name, fields["resource"], fields["resource_name"]) == (
        "config_changed",
        "topic",
        "orders",
    )
    assert fields["configs"] == {"retention.ms": None, "segment.bytes": "2000000"}


def test_one_line_names_all_brokers(world: MemoryBroker, log: pytest.LogCaptureFixture) -> None:
    configure(world, ResourceType.BROKER, "", log_retention_ms="7")
    assert log.messages == ["Changed the configuration of all brokers: log.retention.ms=7"]


def test_the_progress_of_an_archive_is_logged_for_debugging_only(
    world: MemoryBroker, log: pytest.LogCaptureFixture
) -> None:
    """The archive job of each topic publishes it with each commit."""
    world.create("orders")
    events(log)
    configure(world, ResourceType.TOPIC, "orders", table_archived_offsets="0:5")
    assert events(log) == []


TOPIC = b"t" * 16


def image(*partitions: tuple[tuple[int, ...], tuple[int, ...], int]) -> MetadataImage:
    """Return three brokers and a topic; each partition has replicas, ISR and leader."""
    brokers = [BrokerRecord(node_id, bytes([node_id]) * 16, 1, (), None) for node_id in (1, 2, 3)]
    records: list[Record] = [ClusterRecord("c"), *brokers, TopicRecord("orders", TOPIC)]
    for index, (replicas, isr, leader) in enumerate(partitions):
        records.append(PartitionRecord(TOPIC, index, replicas, isr, leader, 0, 0))
    return MetadataImage().apply_all(records, 1)


def lines(
    caplog: pytest.LogCaptureFixture, node_id: int, old: MetadataImage, *records: Record
) -> list[str]:
    caplog.clear()
    caplog.set_level(logging.INFO)
    log_elections(node_id, old, old.apply_all(records, old.end + 1), records)
    return [record.getMessage() for record in caplog.records]


BOTH = image(((2, 1), (2, 1), 2), ((2, 3), (2, 3), 2), ((2, 1), (2,), 2))


def test_a_new_leader_names_its_partitions_and_the_fenced_broker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    elected, leaderless = lines(caplog, 1, BOTH, BrokerFenced(2, 1))
    assert elected == "Broker 2 was fenced: this broker leads orders-0"
    assert leaderless.startswith("Broker 2 was fenced: orders-2 cannot be written or read")


def test_brokers_that_are_fenced_together_have_one_line(caplog: pytest.LogCaptureFixture) -> None:
    alone = image(((2, 3, 1), (2, 3, 1), 2))
    (line,) = lines(caplog, 1, alone, BrokerFenced(2, 1), BrokerFenced(3, 1))
    assert line == "Brokers 2, 3 were fenced: this broker leads orders-0"


def test_a_broker_that_is_not_concerned_has_no_line(caplog: pytest.LogCaptureFixture) -> None:
    full = image(((2, 1), (2, 1), 2))
    assert lines(caplog, 3, full, BrokerFenced(2, 1)) == []
    assert lines(caplog, 3, full, BrokerRecord(3, b"n" * 16, 2, (), None)) == []


def test_a_former_leader_names_the_partitions_that_it_has_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    moved = PartitionRecord(TOPIC, 0, (2, 1), (2, 1), 1, 1, 1)
    (line,) = lines(caplog, 2, BOTH, moved)
    assert line == "Leaders were elected: this broker leads no longer orders-0"


def test_many_partitions_have_one_line(caplog: pytest.LogCaptureFixture) -> None:
    many = image(*[((2, 1), (2, 1), 2)] * 100)
    (line,) = lines(caplog, 1, many, BrokerFenced(2, 1))
    assert "orders-0, orders-1, orders-2 and 97 more" in line


def test_a_leader_that_returns_is_said_to_be_unfenced(caplog: pytest.LogCaptureFixture) -> None:
    alone = image(((2,), (2,), 2))
    fenced = alone.apply_all([BrokerFenced(2, 1)], 2)
    (line,) = lines(caplog, 2, fenced, BrokerUnfenced(2, 1))
    assert line.startswith("Broker 2 was unfenced: this broker leads orders-0")


def test_the_loss_of_the_last_eligible_replica_needs_an_operator(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its partition has had no leader before."""
    last = image(((2, 1), (2,), 2)).apply_all([BrokerFenced(2, 1)], 2)
    (line,) = lines(caplog, 1, last, BrokerLost(2, 1, keeps_folder=False))
    assert line.startswith("Broker 2 may have lost records: no replica of orders-0 is known")
    assert "lakelog topic elect --unclean" in line
    lost = last.apply(BrokerLost(2, 1, keeps_folder=False))
    assert lines(caplog, 1, lost, BrokerUnfenced(2, 1)) == []
    assert lines(caplog, 1, lost, PartitionRecord(TOPIC, 0, (2, 1), (1,), 1, 9, 9)) != []


def test_a_sole_replica_that_kept_its_folder_needs_no_operator(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fenced = image(((2,), (2,), 2)).apply_all([BrokerFenced(2, 1)], 2)
    assert lines(caplog, 1, fenced, BrokerLost(2, 1, keeps_folder=True)) == []


def test_a_start_names_partitions_that_wait_for_another_broker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    down = image(((2, 1), (2,), 2), ((1, 2), (1,), 1), ((3,), (3,), 3))
    down = down.apply_all([BrokerFenced(node_id, 1) for node_id in (1, 2)], 2)
    log_leaderless(1, down)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("At the start: orders-0 cannot be written or read")
    caplog.clear()
    log_leaderless(1, down.apply(BrokerLost(1, 1, keeps_folder=False)))
    _, line = [record.getMessage() for record in caplog.records]
    assert line.startswith("At the start: no replica of orders-1 is known")
    caplog.clear()
    log_leaderless(3, image(((2, 1), (2,), 2)))
    assert caplog.records == []


PASSING, OTHER = (
    KafkaError(code) for code in (ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.KAFKA_STORAGE_ERROR)
)


class Copied:
    """A partition that is copied from broker 2, and the events of its lines."""

    topic, index = "orders", 3

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        self._caplog = caplog
        self.now = 100.0
        clock: Any = self
        self.failures = FetchFailures(2, clock)

    def monotonic(self) -> float:
        return self.now

    def fail(self, error: Exception, *, seconds: float = 0.0) -> None:
        for _ in range(3):
            self.failures.failed(self._partition, error)
        self.now += seconds

    def succeed(self) -> None:
        self.failures.succeeded(self._partition)

    @property
    def _partition(self) -> Any:
        return self

    @property
    def events(self) -> list[str]:
        return [record.__dict__["event"] for record in self._caplog.records]


@pytest.fixture
def copied(caplog: pytest.LogCaptureFixture) -> Copied:
    return Copied(caplog)


def test_a_failure_has_one_line_at_its_begin_and_one_at_its_end(copied: Copied) -> None:
    copied.fail(OTHER, seconds=60.0)
    copied.fail(OTHER)
    assert copied.events == ["replica_fetch_failed"]
    copied.succeed()
    copied.succeed()
    assert copied.events == ["replica_fetch_failed", "replica_fetch_resumed"]


def test_different_leader_epochs_after_an_election_have_no_line(copied: Copied) -> None:
    copied.fail(PASSING, seconds=LASTS_S - 0.1)
    copied.fail(PASSING)
    copied.succeed()
    assert copied.events == []
    copied.fail(PASSING, seconds=LASTS_S)
    copied.fail(PASSING)
    assert copied.events == ["replica_fetch_failed"], "this one lasts"


def test_a_partition_that_is_copied_from_elsewhere_is_forgotten(copied: Copied) -> None:
    copied.fail(OTHER)
    copied.failures.forget(copied._partition)
    copied.succeed()
    assert copied.events == ["replica_fetch_failed"]
