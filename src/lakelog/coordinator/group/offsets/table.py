"""Committed offsets by group, topic and partition.

An offset is stored with the id of its topic. So an offset of a deleted topic is never returned for
a new topic of the same name, even if a crash has lost the offset's tombstone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lakelog.base.memory_budget import Account
from lakelog.base.uuids import ZERO_UUID
from lakelog.coordinator.group.memory import OFFSETS_BYTES, offset_bytes
from lakelog.coordinator.group.offsets.newcomers import NEWCOMER_MS
from lakelog.coordinator.group.offsets.pending import PendingOffsets
from lakelog.coordinator.group.records.offset import (
    OffsetCommitKey,
    OffsetCommitValue,
    OffsetRecord,
)
from lakelog.coordinator.shared_count import ShardCount

PartitionOffsets = dict[int, OffsetCommitValue]


class OffsetTable:
    """The committed offsets of one shard."""

    def __init__(self, account: Account[str], group_count: ShardCount) -> None:
        self._account = account
        self._group_count = group_count
        self._groups: dict[str, dict[str, PartitionOffsets]] = {}
        self.pending = PendingOffsets(account)
        self.newcomers: dict[str, int] = {}
        """Groups that have not committed again after `NEWCOMER_MS`, with the time of their first
        known commit in milliseconds since the epoch."""

    def replay(self, record: OffsetRecord) -> None:
        """Apply a committed offset or tombstone that is not part of a transaction."""
        # A tombstone overtakes as well: a deleted offset must not come back with a marker.
        self.pending.overtake(record.key)
        self._apply(record)

    def _apply(self, record: OffsetRecord) -> None:
        key, value = record
        old = self._groups.get(key.group, {}).get(key.topic, {}).get(key.partition)
        self._account.add(key.group, offset_bytes(key, value) - offset_bytes(key, old))
        if value is not None:
            self._note_commit(key.group, value.commit_timestamp)
            if key.group not in self._groups:
                self._account.add(key.group, OFFSETS_BYTES)
                self._group_count.add(1)
            topics = self._groups.setdefault(key.group, {})
            topics.setdefault(key.topic, {})[key.partition] = value
            return
        topics = self._groups.get(key.group, {})
        partitions = topics.get(key.topic, {})
        partitions.pop(key.partition, None)
        if not partitions:
            topics.pop(key.topic, None)
        if not topics and self._groups.pop(key.group, None) is not None:
            self._account.add(key.group, -OFFSETS_BYTES)
            self._group_count.add(-1)
            self.newcomers.pop(key.group, None)

    def _note_commit(self, group_id: str, commit_ms: int) -> None:
        if group_id not in self._groups:
            self.newcomers[group_id] = commit_ms
        elif commit_ms - self.newcomers.get(group_id, commit_ms) >= NEWCOMER_MS:
            del self.newcomers[group_id]

    def growth(self, records: Iterable[OffsetRecord]) -> int:
        """Return the bytes of memory that these records would add."""
        return sum(
            offset_bytes(key, value)
            - offset_bytes(key, self.of_group(key.group).get(key.topic, {}).get(key.partition))
            for key, value in records
        )

    def replay_end(self, producer_id: int, *, commit: bool) -> None:
        """Apply or drop the pending offsets of a producer."""
        for record in self.pending.end(producer_id, commit=commit):
            self._apply(record)

    def knows(self, group_id: str) -> bool:
        """Return whether a group has committed offsets or offsets in open transactions."""
        return group_id in self._groups or group_id in self.pending

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._groups

    def __len__(self) -> int:
        """Number of groups with committed offsets."""
        return len(self._groups)

    @property
    def group_ids(self) -> list[str]:
        """Ids of the groups with committed offsets."""
        return list(self._groups)

    def of_group(self, group_id: str) -> dict[str, PartitionOffsets]:
        """Return a group's offsets by topic and partition; the caller must not change them."""
        return self._groups.get(group_id, {})

    def find(
        self, group_id: str, topic: str, topic_id: bytes, partition: int
    ) -> OffsetCommitValue | None:
        """Return the offset committed to the topic with this id, or None.

        The zero id, on either side, matches any id.
        """
        value = self.of_group(group_id).get(topic, {}).get(partition)
        if value is None or not same_topic(value.topic_id, topic_id):
            return None
        return value

    def of_topic(self, topic: str, topic_id: bytes) -> Iterator[OffsetCommitKey]:
        """Yield the keys of all offsets committed to a topic."""
        for group_id, topics in self._groups.items():
            for partition, value in topics.get(topic, {}).items():
                if same_topic(value.topic_id, topic_id):
                    yield OffsetCommitKey(group=group_id, topic=topic, partition=partition)


def same_topic(one: bytes, other: bytes) -> bool:
    """Return whether two topic ids are equal, or one of them is the zero id.

    Records before version 4 of the value have no topic id.
    """
    return ZERO_UUID in (one, other) or one == other


def tombstones(keys: Iterable[OffsetCommitKey]) -> list[OffsetRecord]:
    """Return a tombstone for each key."""
    return [OffsetRecord(key, None) for key in keys]
