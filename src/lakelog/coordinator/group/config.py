"""The input of the group coordinator from its broker: the configuration and the current topics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol


class Values(Protocol):
    """The broker's configuration."""

    def get(self, name: str) -> object: ...

    def get_int(self, name: str) -> int: ...


class MigrationPolicy(StrEnum):
    """The directions in which a group with members may change its protocol (KIP-848)."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def upgrades(self) -> bool:
        """Whether a classic group may become a consumer group."""
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def downgrades(self) -> bool:
        """Whether a consumer group may become a classic group."""
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """Settings of the consumer protocol (`group.consumer.*`); times in milliseconds."""

    is_enabled: bool = True
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    """The shortest time between two target assignments of a group (KIP-1263)."""
    members_max: int = 2**31 - 1
    assignors: tuple[str, ...] = ("uniform", "range")
    """The first one is the default of members that name none."""
    migration: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    regex_refresh_ms: int = 600_000

    @staticmethod
    def from_broker(values: Values) -> ConsumerConfig:
        """Return the settings of a broker."""
        protocols = values.get("group.coordinator.rebalance.protocols")
        assignors = values.get("group.consumer.assignors")
        assert isinstance(protocols, tuple)
        assert isinstance(assignors, tuple)
        return ConsumerConfig(
            is_enabled="consumer" in (protocol.lower() for protocol in protocols),
            session_timeout_ms=values.get_int("group.consumer.session.timeout.ms"),
            heartbeat_interval_ms=values.get_int("group.consumer.heartbeat.interval.ms"),
            assignment_interval_ms=values.get_int("group.consumer.assignment.interval.ms"),
            members_max=values.get_int("group.consumer.max.size"),
            assignors=assignors,
            migration=MigrationPolicy(str(values.get("group.consumer.migration.policy")).lower()),
            regex_refresh_ms=values.get_int("group.consumer.regex.refresh.interval.ms"),
        )


Overrides = Callable[[str], Mapping[str, int]]
"""Returns the settings of a single group by its id (`consumer.session.timeout.ms` and others)."""


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Settings of the group coordinator; times in milliseconds, sizes in bytes.

    The defaults equal Apache Kafka 4.4.
    """

    initial_rebalance_delay_ms: int = 3000
    session_timeout_min_ms: int = 6000
    session_timeout_max_ms: int = 1_800_000
    members_max: int = 2**31 - 1
    groups_max: int = 10_000
    subscriptions_bytes_max: int = 16 << 20
    new_member_join_timeout_ms: int = 300_000
    """Session timeout of a new member until its first generation."""
    offset_metadata_max: int = 4096
    """UTF-16 code units, as in Kafka."""
    offsets_retention_ms: int = 10_080 * 60_000
    offsets_retention_check_ms: int = 600_000
    partitions: int = 50
    batch_bytes_max: int = 1_048_588
    consumer: ConsumerConfig = field(default_factory=ConsumerConfig)

    @staticmethod
    def from_broker(values: Values) -> GroupConfig:
        """Return the settings of a broker."""
        return GroupConfig(
            initial_rebalance_delay_ms=values.get_int("group.initial.rebalance.delay.ms"),
            session_timeout_min_ms=values.get_int("group.min.session.timeout.ms"),
            session_timeout_max_ms=values.get_int("group.max.session.timeout.ms"),
            members_max=values.get_int("group.max.size"),
            groups_max=values.get_int("lakelog.groups.max"),
            subscriptions_bytes_max=values.get_int("lakelog.group.subscriptions.max.bytes"),
            offset_metadata_max=values.get_int("offset.metadata.max.bytes"),
            offsets_retention_ms=values.get_int("offsets.retention.minutes") * 60_000,
            offsets_retention_check_ms=values.get_int("offsets.retention.check.interval.ms"),
            partitions=values.get_int("offsets.topic.num.partitions"),
            batch_bytes_max=values.get_int("message.max.bytes"),
            consumer=ConsumerConfig.from_broker(values),
        )


class Topics(Protocol):
    """The current topics of the broker's metadata."""

    def topic_id(self, name: str) -> bytes | None:
        """Return the id of a topic, None if it does not exist."""
        ...

    def topic_name(self, topic_id: bytes) -> str | None:
        """Return the name of a topic, None if it does not exist."""
        ...

    def partition_count(self, name: str) -> int:
        """Return the number of partitions, 0 if the topic does not exist."""
        ...

    def names(self) -> Iterable[str]:
        """Return the names of all topics, in any order."""
        ...

    def version(self) -> int:
        """Return the version of the metadata, which only rises."""
        ...
