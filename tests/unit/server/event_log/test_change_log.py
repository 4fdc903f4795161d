from __future__ import annotations

import logging
from typing import Any

import pytest

from lakelog.metadata.controller.configs import Replacement, plan_replace_configs
from lakelog.metadata.controller.topics import MorePartitions
from lakelog.metadata.records import ResourceType
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
