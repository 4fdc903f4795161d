"""Committed offsets by group, topic and partition, offsets of open transactions, and probationary
groups.

An offset is stored with the id of its topic. So an offset of a deleted topic is never returned for
a new topic of the same name, even if a crash has lost the offset's tombstone.

TxnOffsetCommit writes offsets of open transactions to the log; the transaction's commit marker
makes them valid. Until then the partition's offset is unstable (KIP-447). An offset that was
committed later in the log overtakes a pending one: it stays, whether the pending offset's
transaction commits or aborts.

A probationary group is a group whose offsets were all committed within 10 seconds. When there is no
capacity for new groups, probationary groups are evicted in an order: a client that commits again
later has a group in use. A flood of groups comes within a short time, so the groups of the minute
with the most are evicted first, and earlier and later groups stay. Probationary groups of the
current minute are not evicted. So offsets are kept for at least a minute, and a client that commits
once a minute never loses any.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lakelog.base.memory_budget import Account
from lakelog.base.uuids import ZERO_UUID
from lakelog.coordinator.group.limits import OFFSETS_BYTES, offset_bytes, pending_offset_bytes
from lakelog.coordinator.group.records import OffsetCommitKey, OffsetCommitValue, OffsetRecord
from lakelog.coordinator.shard import ShardCount

PROBATION_MS = 10_000
"""A group that commits again after this time is in use."""
_MINUTE_MS = 60_000


class ProbationaryGroup(NamedTuple):
    """A group that may be evicted."""

    since_ms: int
    """Time of its first commit, milliseconds since the epoch."""
    group_id: str


def in_order_of_eviction(
    probationary_groups: Sequence[ProbationaryGroup], now_ms: int
) -> Iterator[ProbationaryGroup]:
    """Yield the probationary groups that may be evicted now, in the order of eviction.

    `now_ms` is in milliseconds since the epoch. Nothing is yielded once the fullest remaining
    minute is too recent.
    """
    counts = Counter(
        probationary_group.since_ms // _MINUTE_MS for probationary_group in probationary_groups
    )
    busiest = sorted(counts, key=lambda minute: (counts[minute], minute), reverse=True)
    for minute in busiest:
        if (minute + 1) * _MINUTE_MS + PROBATION_MS > now_ms - _MINUTE_MS:
            return
        of_minute = [
            probationary_group
            for probationary_group in probationary_groups
            if probationary_group.since_ms // _MINUTE_MS == minute
        ]
        yield from sorted(of_minute, reverse=True)


OffsetKey = tuple[str, str, int]
"""Group, topic and partition."""


@dataclass(slots=True)
class _Pending:
    record: OffsetRecord
    serial: int
    """Number that rises with the position in the log."""
    is_overtaken: bool = False


class PendingOffsets:
    """Offsets of open transactions, by producer id."""

    def __init__(self, account: Account[str]) -> None:
        self._account = account
        self._producers: dict[int, dict[OffsetKey, _Pending]] = {}
        self._keys: dict[OffsetKey, set[int]] = {}
        self._groups: Counter[str] = Counter()
        self._serial = 0

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._groups

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Return whether an open transaction has an offset for the partition."""
        return (group_id, topic, partition) in self._keys

    def add(self, record: OffsetRecord, producer_id: int) -> None:
        """Add an offset of a producer's open transaction."""
        key = _key(record.key)
        offsets = self._producers.setdefault(producer_id, {})
        if key not in offsets:
            self._keys.setdefault(key, set()).add(producer_id)
            self._groups[record.key.group] += 1
        else:
            self._account.add(key[0], -pending_offset_bytes(*offsets[key].record))
        self._account.add(key[0], pending_offset_bytes(*record))
        self._serial += 1
        offsets[key] = _Pending(record, self._serial)

    def of_group(self, group_id: str) -> list[tuple[str, int]]:
        """Return topics and partitions with pending offsets of a group."""
        return [(topic, partition) for group, topic, partition in self._keys if group == group_id]

    def overtake(self, key: OffsetCommitKey) -> None:
        """Note a later commit without a transaction; earlier pending offsets lose their effect."""
        self._overtake(_key(key), self._serial + 1)

    def _overtake(self, key: OffsetKey, serial: int) -> None:
        for producer_id in self._keys.get(key, ()):
            pending = self._producers[producer_id][key]
            pending.is_overtaken |= pending.serial < serial

    def end(self, producer_id: int, *, commit: bool) -> list[OffsetRecord]:
        """End a producer's transaction; return the offsets that become valid."""
        applied = []
        for key, pending in self._producers.pop(producer_id, {}).items():
            self._account.add(key[0], -pending_offset_bytes(*pending.record))
            self._forget(key, producer_id)
            if commit and not pending.is_overtaken:
                applied.append(pending.record)
                # Of two transactions, the offset that is later in the log counts, not the marker.
                self._overtake(key, pending.serial)
        return applied

    def _forget(self, key: OffsetKey, producer_id: int) -> None:
        assert producer_id in self._keys[key], "its transaction has ended already"
        assert self._groups[key[0]] > 0, "the group has no pending offset left"
        self._keys[key].discard(producer_id)
        if not self._keys[key]:
            del self._keys[key]
        self._groups[key[0]] -= 1
        if not self._groups[key[0]]:
            del self._groups[key[0]]


def _key(key: OffsetCommitKey) -> OffsetKey:
    return key.group, key.topic, key.partition


PartitionOffsets = dict[int, OffsetCommitValue]


class OffsetTable:
    """The committed offsets of one shard."""

    def __init__(self, account: Account[str], group_count: ShardCount) -> None:
        self._account = account
        self._group_count = group_count
        self._groups: dict[str, dict[str, PartitionOffsets]] = {}
        self.pending = PendingOffsets(account)
        self.probationary_groups: dict[str, int] = {}
        """Groups that have not committed again after `PROBATION_MS`, with the time of their first
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
            self.probationary_groups.pop(key.group, None)

    def _note_commit(self, group_id: str, commit_ms: int) -> None:
        if group_id not in self._groups:
            self.probationary_groups[group_id] = commit_ms
        elif commit_ms - self.probationary_groups.get(group_id, commit_ms) >= PROBATION_MS:
            del self.probationary_groups[group_id]

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
