"""Offsets that are committed with a transaction: TxnOffsetCommit (versions 0 to 6).

They are in the log from the commit on and count from the transaction's marker on. Until then the
partition's offset is unstable (KIP-447). An offset that was committed later in the log than a
pending one stays, whichever way the transaction of the other ends.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.state_room import StateAccount
from lakelog.coordinator.group.classic import ClassicGroup, GroupState
from lakelog.coordinator.group.records import OffsetCommitKey, OffsetRecord
from lakelog.coordinator.group.sizes import pending_offset_bytes
from lakelog.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponseTopic,
)
from lakelog.protocol.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

_TXN_TOPIC_IDS_SINCE = 6
_COMMIT_WITH_NAMES = 9
_COMMIT_WITH_TOPIC_IDS = 10
_NEWER_CODES_SINCE = 6

OffsetKey = tuple[str, str, int]
"""Group, topic and partition."""


@dataclass(slots=True)
class _Pending:
    record: OffsetRecord
    serial: int
    """Of its place in the log."""
    is_overtaken: bool = False


class PendingOffsets:
    """Offsets of open transactions, by producer id."""

    def __init__(self, account: StateAccount) -> None:
        self._account = account
        self._producers: dict[int, dict[OffsetKey, _Pending]] = {}
        self._keys: dict[OffsetKey, set[int]] = {}
        self._groups: Counter[str] = Counter()
        self._serial = 0

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._groups

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        return (group_id, topic, partition) in self._keys

    def add(self, record: OffsetRecord, producer_id: int) -> None:
        key = _key(record.key)
        offsets = self._producers.setdefault(producer_id, {})
        if key not in offsets:
            self._keys.setdefault(key, set()).add(producer_id)
            self._groups[record.key.group] += 1
        else:
            self._account.note(key[0], -pending_offset_bytes(*offsets[key].record))
        self._account.note(key[0], pending_offset_bytes(*record))
        self._serial += 1
        offsets[key] = _Pending(record, self._serial)

    def of_group(self, group_id: str) -> list[tuple[str, int]]:
        """Topics and partitions."""
        return [(topic, partition) for group, topic, partition in self._keys if group == group_id]

    def overtake(self, key: OffsetCommitKey) -> None:
        """This offset has been committed otherwise, later than all that are pending."""
        self._overtake(_key(key), self._serial + 1)

    def _overtake(self, key: OffsetKey, serial: int) -> None:
        for producer_id in self._keys.get(key, ()):
            pending = self._producers[producer_id][key]
            pending.is_overtaken |= pending.serial < serial

    def end(self, producer_id: int, *, commit: bool) -> list[OffsetRecord]:
        """Forgets what is pending of a producer; returns what is to be applied."""
        applied = []
        for key, pending in self._producers.pop(producer_id, {}).items():
            self._account.note(key[0], -pending_offset_bytes(*pending.record))
            self._forget(key, producer_id)
            if commit and not pending.is_overtaken:
                applied.append(pending.record)
                self._overtake(key, pending.serial)
        return applied

    def _forget(self, key: OffsetKey, producer_id: int) -> None:
        self._keys[key].discard(producer_id)
        if not self._keys[key]:
            del self._keys[key]
        self._groups[key[0]] -= 1
        if not self._groups[key[0]]:
            del self._groups[key[0]]


def _key(key: OffsetCommitKey) -> OffsetKey:
    return key.group, key.topic, key.partition


def check_txn_commit(
    group: ClassicGroup | None, known: bool, request: TxnOffsetCommitRequest, version: int
) -> None:
    """Whether a commit may be taken from whoever sends it; raises `KafkaError` if not.

    A client that names neither a member nor a generation, as those before KIP-447, is not checked:
    its producer's epoch is all that fences it.
    """
    generation = request.generation_id_or_member_epoch
    if group is None and not known and generation >= 0:
        newer = version >= _NEWER_CODES_SINCE
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND if newer else ErrorCode.ILLEGAL_GENERATION)
    if generation < 0 and (group is None or group.state is GroupState.EMPTY):
        return
    if generation < 0 and not request.member_id and request.group_instance_id is None:
        return
    if group is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    group.validate(request.member_id, request.group_instance_id)
    if generation != group.generation:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)


def older_code(code: ErrorCode, version: int) -> ErrorCode:
    """A member's stale epoch is an illegal generation to clients that know no epochs."""
    stale = code is ErrorCode.STALE_MEMBER_EPOCH
    return ErrorCode.ILLEGAL_GENERATION if stale and version < _NEWER_CODES_SINCE else code


def as_offset_commit(
    request: TxnOffsetCommitRequest, version: int
) -> tuple[OffsetCommitRequest, int]:
    """The same offsets as an OffsetCommit, and its version."""
    topics = [
        OffsetCommitRequestTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=partition.partition_index,
                    committed_offset=partition.committed_offset,
                    committed_leader_epoch=partition.committed_leader_epoch,
                    committed_metadata=partition.committed_metadata,
                )
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    uses_ids = version >= _TXN_TOPIC_IDS_SINCE
    commit_version = _COMMIT_WITH_TOPIC_IDS if uses_ids else _COMMIT_WITH_NAMES
    return OffsetCommitRequest(group_id=request.group_id, topics=topics), commit_version


def as_txn_response(topics: list[OffsetCommitResponseTopic]) -> TxnOffsetCommitResponse:
    answers = [
        TxnOffsetCommitResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                TxnOffsetCommitResponsePartition(
                    partition_index=partition.partition_index, error_code=partition.error_code
                )
                for partition in topic.partitions
            ],
        )
        for topic in topics
    ]
    return TxnOffsetCommitResponse(topics=answers)


def refuse_txn_commit(request: TxnOffsetCommitRequest, code: ErrorCode) -> TxnOffsetCommitResponse:
    """The same code for every partition."""
    answers = [
        TxnOffsetCommitResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                TxnOffsetCommitResponsePartition(
                    partition_index=partition.partition_index, error_code=code
                )
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return TxnOffsetCommitResponse(topics=answers)
