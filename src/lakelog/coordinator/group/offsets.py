"""Committed offsets: the durable table, OffsetCommit (versions 2 to 10), OffsetFetch (1 to 10).

An offset is kept with the id of its topic. One that was committed to a deleted topic is never
returned for a new topic of the same name, even if its tombstone was lost with a crash.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.state_room import StateAccount
from lakelog.base.uuids import ZERO_UUID
from lakelog.coordinator.group.classic import ClassicGroup, GroupState
from lakelog.coordinator.group.newcomers import NEWCOMER_MS
from lakelog.coordinator.group.records import OffsetCommitKey, OffsetCommitValue, OffsetRecord
from lakelog.coordinator.group.sizes import OFFSETS_BYTES, offset_bytes
from lakelog.coordinator.group.txn_offsets import PendingOffsets
from lakelog.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

_GROUP_ID_NOT_FOUND_SINCE = 9
TOPIC_IDS_SINCE = 10

PartitionOffsets = dict[int, OffsetCommitValue]
_TIME_MAX = (1 << 63) - 1


class Topics(Protocol):
    """What the broker's metadata says of topics now."""

    def topic_id(self, name: str) -> bytes | None: ...

    def topic_name(self, topic_id: bytes) -> str | None: ...

    def partition_count(self, name: str) -> int:
        """0 if there is no such topic."""
        ...

    def names(self) -> Iterable[str]:
        """Of all topics, in any order."""
        ...

    def version(self) -> int:
        """Of the metadata; it only rises."""
        ...


class OffsetTable:
    """Committed offsets by group, topic and partition."""

    def __init__(self, account: StateAccount) -> None:
        self._account = account
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


def check_commit(
    group: ClassicGroup | None, known: bool, request: OffsetCommitRequest, version: int
) -> None:
    """Whether a commit may be taken from whoever sends it; raises `KafkaError` if not.

    Args:
        group: None if no member has ever joined it here.
        known: whether there are committed offsets.

    A generation of -1 without a member id is a simple consumer's: it manages its own assignment
    and may only use a group without members.
    """
    generation = request.generation_id_or_member_epoch
    if group is None and not known and generation >= 0:
        newer = version >= _GROUP_ID_NOT_FOUND_SINCE
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND if newer else ErrorCode.ILLEGAL_GENERATION)
    empty = group is None or group.state is GroupState.EMPTY
    if generation < 0 and empty:
        return
    if generation < 0 and not request.member_id and request.group_instance_id is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    if group is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    group.validate(request.member_id, request.group_instance_id)
    if generation != group.generation:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    if group.state is GroupState.COMPLETING_REBALANCE:
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)


def plan_commit(
    request: OffsetCommitRequest,
    version: int,
    topics: Topics,
    metadata_max: int,
    now_ms: int,
) -> tuple[list[OffsetRecord], list[OffsetCommitResponseTopic]]:
    """The records of those offsets that can be committed, and the answer for all.

    Args:
        metadata_max: UTF-16 code units of the text kept with an offset.
        now_ms: milliseconds since the epoch.
    """
    records: list[OffsetRecord] = []
    responses: list[OffsetCommitResponseTopic] = []
    for topic in request.topics:
        name = topic.name if version < TOPIC_IDS_SINCE else topics.topic_name(topic.topic_id)
        topic_id = None if name is None else topics.topic_id(name)
        answer = OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
        responses.append(answer)
        for partition in topic.partitions:
            index = partition.partition_index
            if name is None:
                code = ErrorCode.UNKNOWN_TOPIC_ID
            elif topic_id is None or not 0 <= index < topics.partition_count(name):
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif _utf16_length(partition.committed_metadata or "") > metadata_max:
                code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                code = ErrorCode.NONE
                key = OffsetCommitKey(group=request.group_id, topic=name, partition=index)
                value = _value(partition, topic_id, request.retention_time_ms, now_ms)
                records.append(OffsetRecord(key, value))
            answer.partitions.append(
                OffsetCommitResponsePartition(partition_index=index, error_code=code)
            )
    return records, responses


def _value(
    partition: OffsetCommitRequestPartition, topic_id: bytes, retention_ms: int, now_ms: int
) -> OffsetCommitValue:
    value = OffsetCommitValue(
        offset=partition.committed_offset,
        metadata=partition.committed_metadata or "",
        commit_timestamp=now_ms,
    )
    if retention_ms == -1:
        value.leader_epoch = partition.committed_leader_epoch
        value.topic_id = topic_id
    else:
        # The only version with a time to expire (v1) has neither epoch nor topic id.
        value.expire_timestamp = min(now_ms + retention_ms, _TIME_MAX)
    return value


def _utf16_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def refuse_commit(request: OffsetCommitRequest, code: ErrorCode) -> list[OffsetCommitResponseTopic]:
    """The same code for every partition."""
    return [
        OffsetCommitResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                OffsetCommitResponsePartition(
                    partition_index=partition.partition_index, error_code=code
                )
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]
