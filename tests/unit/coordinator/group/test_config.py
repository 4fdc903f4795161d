from __future__ import annotations

import pytest

from lakelog.base.config.broker_config import BrokerConfig
from lakelog.coordinator.group.config import ConsumerConfig, GroupConfig, MigrationPolicy


def test_a_broker_differs_from_kafka_only_in_the_most_members_of_a_group() -> None:
    """Both limits of a broker bound the memory of one group; Kafka has none by default."""
    consumer = ConsumerConfig(members_max=10_000)
    expected = GroupConfig(members_max=10_000, consumer=consumer)
    assert GroupConfig.from_broker(BrokerConfig({})) == expected


def test_each_key_sets_its_own_field() -> None:
    values = {
        "group.initial.rebalance.delay.ms": "1",
        "group.min.session.timeout.ms": "2",
        "group.max.session.timeout.ms": "3000",
        "group.max.size": "4",
        "lakelog.groups.max": "5",
        "lakelog.group.subscriptions.max.bytes": "60000",
        "offset.metadata.max.bytes": "7",
        "offsets.retention.minutes": "8",
        "offsets.retention.check.interval.ms": "9",
        "offsets.topic.num.partitions": "10",
        "message.max.bytes": "11000",
        "group.consumer.session.timeout.ms": "46000",
        "group.consumer.heartbeat.interval.ms": "5013",
        "group.consumer.assignment.interval.ms": "14",
        "group.consumer.max.size": "15",
        "group.consumer.assignors": "range",
        "group.consumer.migration.policy": "upgrade",
        "group.consumer.regex.refresh.interval.ms": "16000",
    }
    consumer = ConsumerConfig(
        session_timeout_ms=46_000,
        heartbeat_interval_ms=5013,
        assignment_interval_ms=14,
        members_max=15,
        assignors=("range",),
        migration=MigrationPolicy.UPGRADE,
        regex_refresh_ms=16_000,
    )
    assert GroupConfig.from_broker(BrokerConfig(values)) == GroupConfig(
        initial_rebalance_delay_ms=1,
        session_timeout_min_ms=2,
        session_timeout_max_ms=3000,
        members_max=4,
        groups_max=5,
        subscriptions_bytes_max=60_000,
        offset_metadata_max=7,
        offsets_retention_ms=8 * 60_000,
        offsets_retention_check_ms=9,
        partitions=10,
        batch_bytes_max=11_000,
        consumer=consumer,
    )


@pytest.mark.parametrize(
    ("protocols", "expected"),
    [("classic,consumer", True), ("classic", False)],
)
def test_the_consumer_protocol_can_be_disabled(protocols: str, expected: bool) -> None:
    config = BrokerConfig({"group.coordinator.rebalance.protocols": protocols})
    assert ConsumerConfig.from_broker(config).is_enabled is expected


@pytest.mark.parametrize(
    ("policy", "upgrades", "downgrades"),
    [
        ("disabled", False, False),
        ("upgrade", True, False),
        ("downgrade", False, True),
        ("bidirectional", True, True),
    ],
)
def test_each_migration_policy_allows_its_directions(
    policy: str, upgrades: bool, downgrades: bool
) -> None:
    config = BrokerConfig({"group.consumer.migration.policy": policy})
    migration = ConsumerConfig.from_broker(config).migration
    assert (migration.upgrades, migration.downgrades) == (upgrades, downgrades)
