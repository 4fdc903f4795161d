"""What the group coordinator reads of the broker's configuration, under Kafka's own keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class Values(Protocol):
    def get_int(self, name: str) -> int: ...


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Times in milliseconds, sizes in bytes; defaults are Apache Kafka 4.4's."""

    initial_rebalance_delay_ms: int = 3000
    session_timeout_min_ms: int = 6000
    session_timeout_max_ms: int = 1_800_000
    members_max: int = 2**31 - 1
    new_member_join_timeout_ms: int = 300_000
    """A member that joined without a known id (JoinGroup below v4) is dropped after this."""
    offset_metadata_max: int = 4096
    """In UTF-16 code units, as Kafka counts it."""
    offsets_retention_ms: int = 10_080 * 60_000
    offsets_retention_check_ms: int = 600_000
    partitions: int = 50
    batch_bytes_max: int = 1_048_588

    @staticmethod
    def from_broker(values: Values) -> GroupConfig:
        return GroupConfig(
            initial_rebalance_delay_ms=values.get_int("group.initial.rebalance.delay.ms"),
            session_timeout_min_ms=values.get_int("group.min.session.timeout.ms"),
            session_timeout_max_ms=values.get_int("group.max.session.timeout.ms"),
            members_max=values.get_int("group.max.size"),
            offset_metadata_max=values.get_int("offset.metadata.max.bytes"),
            offsets_retention_ms=values.get_int("offsets.retention.minutes") * 60_000,
            offsets_retention_check_ms=values.get_int("offsets.retention.check.interval.ms"),
            partitions=values.get_int("offsets.topic.num.partitions"),
            batch_bytes_max=values.get_int("message.max.bytes"),
        )
