"""Committed offsets by group, topic and partition.

An offset is kept with the id of its topic. One that was committed to a deleted topic is never
returned for a new topic of the same name, even if its tombstone was lost with a crash.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lakelog.base.state_budget import StateAccount
from lakelog.base.uuids import ZERO_UUID
from lakelog.coordinator.group.memory import OFFSETS_BYTES, offset_bytes
from lakelog.coordinator.group.newcomers import NEWCOMER_MS
from lakelog.coordinator.group.offsets.pending import PendingOffsets
from lakelog.coordinator.group.records import OffsetCommitKey, OffsetCommitValue, OffsetRecord
from lakelog.coordinator.shared_count import ShardCount

PartitionOffsets = dict[int, OffsetCommitValue]


class OffsetTable:
    """Committed offsets by group, topic and partition."""

    def __init__(self, account: StateAccount, group_count: ShardCount) -> None:
        self._account = account
        self._group_count = group_count
        self._groups: dict[str, dict[str, PartitionOffsets]] = {}
        self.pending = PendingOffsets(account)
        self.newcomers: dict[str, int] = {}
        """Groups that have not committed again after `NEWCOMER_MS`, with the time of their first
        commit known here, milliseconds since the epoch."""

    def replay(self, record: OffsetRecord) -> None:
        self.pending.overtake(record.key)
        self._apply(record)

    def _apply(self, record: OffsetRecord) -> None:
        key, value = record
        old = self._groups.get(key.group, {}).get(key.topic, {}).get(key.partition)
        self._account.note(key.group, offset_bytes(key, value) - offset_bytes(key, old))
        if value is not None:
            self._note_commit(key.group, value.commit_timestamp)
            if key.group not in self._groups:
                self._account.note(key.group, OFFSETS_BYTES)
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
            self._account.note(key.group, -OFFSETS_BYTES)
            self._group_count.add(-1)
            self.newcomers.pop(key.group, None)

    def _note_commit(self, group_id: str, commit_ms: int) -> None:
        if group_id not in self._groups:
            self.newcomers[group_id] = commit_ms
        elif commit_ms - self.newcomers.get(group_id, commit_ms) >= NEWCOMER_MS:
            del self.newcomers[group_id]

    def growth(self, records: Iterable[OffsetRecord]) -> int:
        """Bytes that these records would add."""
        return sum(
            offset_bytes(key, value)
            - offset_bytes(key, self.of_group(key.group).get(key.topic, {}).get(key.partition))
            for key, value in records
        )

    def replay_end(self, producer_id: int, *, commit: bool) -> None:
        for record in self.pending.end(producer_id, commit=commit):
            self._apply(record)

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._groups

    def __len__(self) -> int:
        """Groups."""
        return len(self._groups)

    @property
    def group_ids(self) -> list[str]:
        return list(self._groups)

    def of_group(self, group_id: str) -> dict[str, PartitionOffsets]:
        """By topic and partition; not to be changed."""
        return self._groups.get(group_id, {})

    def find(
        self, group_id: str, topic: str, topic_id: bytes, partition: int
    ) -> OffsetCommitValue | None:
        """The offset committed to this very topic; an unknown id (all zero) matches any."""
        value = self.of_group(group_id).get(topic, {}).get(partition)
        if value is None or not same_topic(value.topic_id, topic_id):
            return None
        return value

    def of_topic(self, topic: str, topic_id: bytes) -> Iterator[OffsetCommitKey]:
        for group_id, topics in self._groups.items():
            for partition, value in topics.get(topic, {}).items():
                if same_topic(value.topic_id, topic_id):
                    yield OffsetCommitKey(group=group_id, topic=topic, partition=partition)


def same_topic(one: bytes, other: bytes) -> bool:
    return ZERO_UUID in (one, other) or one == other


def tombstones(keys: Iterable[OffsetCommitKey]) -> list[OffsetRecord]:
    return [OffsetRecord(key, None) for key in keys]
