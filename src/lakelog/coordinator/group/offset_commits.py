"""OffsetCommit, versions 2 to 10, and TxnOffsetCommit, versions 0 to 6: their checks and records.

Both check the sender. The offsets that a producer commits with its transaction are pending until it
ends (KIP-98, KIP-447; `offsets.py`). A member of a consumer group has to send its own epoch. A
commit with an older epoch is accepted for partitions that the member has owned since then: the
response with the new epoch may still be on its way (KIP-848, KIP-1251).
"""

from __future__ import annotations

from collections.abc import Iterable

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.classic.group import ClassicGroup, GroupState
from lakelog.coordinator.group.config import Topics
from lakelog.coordinator.group.consumer.group import ConsumerGroup
from lakelog.coordinator.group.consumer.member import ConsumerMember
from lakelog.coordinator.group.records import OffsetCommitKey, OffsetCommitValue, OffsetRecord
from lakelog.protocol.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

_GROUP_ID_NOT_FOUND_SINCE = 9
TOPIC_IDS_SINCE = 10

_TIME_MAX = (1 << 63) - 1


def check_commit(
    group: ClassicGroup | None, has_offsets: bool, request: OffsetCommitRequest, version: int
) -> None:
    """Raise `KafkaError` unless the sender may commit offsets.

    A request with generation -1 and without a member id comes from a simple consumer. It manages
    its own assignment, and may commit only to a group without members.

    Args:
        group: None if the group never had members.
        has_offsets: whether the group has committed offsets.

    Raises GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION or
    REBALANCE_IN_PROGRESS.
    """
    generation = request.generation_id_or_member_epoch
    # The sender believes to be a member, but the group does not exist (any more).
    if group is None and not has_offsets and generation >= 0:
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
    # The member does not know its new partitions yet: it would commit offsets of partitions that
    # another member may have now. While the group prepares a rebalance, it still owns the old ones.
    if group.state is GroupState.COMPLETING_REBALANCE:
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)


def plan_commit(
    request: OffsetCommitRequest,
    version: int,
    topics: Topics,
    metadata_max: int,
    now_ms: int,
) -> tuple[list[OffsetRecord], list[OffsetCommitResponseTopic]]:
    """Return the records of the valid offsets, and the response for all.

    An invalid offset has its code in the response: UNKNOWN_TOPIC_ID (KIP-848),
    UNKNOWN_TOPIC_OR_PARTITION or OFFSET_METADATA_TOO_LARGE.

    Args:
        metadata_max: maximum length of an offset's metadata in UTF-16 code units.
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
        # Version 1 is the only version with an expiry time; it has neither epoch nor topic id.
        value.expire_timestamp = min(now_ms + retention_ms, _TIME_MAX)
    return value


def _utf16_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def refuse_commit(
    request: OffsetCommitRequest | TxnOffsetCommitRequest, code: ErrorCode
) -> list[OffsetCommitResponseTopic]:
    """Return a response with the same code for every partition."""
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


_TXN_TOPIC_IDS_SINCE = 6
_COMMIT_WITH_NAMES = 9
_COMMIT_WITH_TOPIC_IDS = 10
_NEWER_CODES_SINCE = 6


def check_txn_commit(
    group: ClassicGroup | None, has_offsets: bool, request: TxnOffsetCommitRequest, version: int
) -> None:
    """Raise `KafkaError` unless the sender may commit offsets with its transaction.

    A client that sends neither member id nor generation, as clients before KIP-447 do, is not
    checked: only the epoch of its producer fences it.

    Args:
        group: None if the group never had members.
        has_offsets: whether the group has committed or pending offsets.

    Raises GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID or ILLEGAL_GENERATION.
    """
    generation = request.generation_id_or_member_epoch
    if group is None and not has_offsets and generation >= 0:
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
    """Return ILLEGAL_GENERATION for STALE_MEMBER_EPOCH in versions that have no member epochs."""
    stale = code is ErrorCode.STALE_MEMBER_EPOCH
    return ErrorCode.ILLEGAL_GENERATION if stale and version < _NEWER_CODES_SINCE else code


def as_offset_commit(
    request: TxnOffsetCommitRequest, version: int
) -> tuple[OffsetCommitRequest, int]:
    """Return an OffsetCommit request with the same offsets, and its version.

    From version 6 of TxnOffsetCommit on, topics have ids.
    """
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
    """Return the response to TxnOffsetCommit with the codes of an OffsetCommit."""
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
    """Return a response with the same code for every partition."""
    return as_txn_response(refuse_commit(request, code))


_MEMBER_EPOCHS_SINCE = 9


def check_consumer_commit(
    group: ConsumerGroup,
    member_id: str,
    instance_id: str | None,
    epoch: int,
    partitions: Iterable[tuple[bytes, int]],
    *,
    version: int | None,
) -> None:
    """Raise `KafkaError` unless the sender may commit offsets of these partitions.

    Args:
        partitions: topic id and partition.
        version: version of OffsetCommit; None for an offset in a transaction, which may come
            without a member id (KIP-447).

    Raises UNKNOWN_MEMBER_ID, UNSUPPORTED_VERSION, STALE_MEMBER_EPOCH or ILLEGAL_GENERATION.
    """
    if epoch < 0 and not group.members:
        return
    nameless = epoch == -1 and not member_id and instance_id is None
    if version is None and nameless:
        return
    member = _member(group, member_id)
    if version is not None and member.classic is None and version < _MEMBER_EPOCHS_SINCE:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "OffsetCommit version 9 or above must be used by members using the consumer group "
            "protocol",
        )
    if epoch == member.member_epoch:
        return
    if epoch > member.member_epoch:
        raise _stale(member)
    for topic_id, partition in partitions:
        since = member.held_since(topic_id, partition)
        if since is None or epoch < since:
            raise _stale(member)


def check_consumer_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> None:
    """Raise `KafkaError` unless the sender may fetch offsets.

    A client that sends neither member id nor epoch may always fetch. Raises UNKNOWN_MEMBER_ID,
    STALE_MEMBER_EPOCH or ILLEGAL_GENERATION.
    """
    if member_id is None and epoch < 0:
        return
    member = _member(group, member_id or "")
    if epoch != member.member_epoch:
        raise _stale(member)


def commit_partitions(
    topics: Topics, named: Iterable[tuple[str, bytes, Iterable[int]]], *, by_id: bool
) -> list[tuple[bytes, int]]:
    """Return topic ids and partitions of a commit, without topics that do not exist.

    Args:
        named: name, topic id and partitions of each topic.
        by_id: whether the topic ids count, not the names.
    """
    keys: list[tuple[bytes, int]] = []
    for name, topic_id, partitions in named:
        known_id = topic_id if by_id else topics.topic_id(name)
        if known_id is not None:
            keys += [(known_id, partition) for partition in partitions]
    return keys


def _member(group: ConsumerGroup, member_id: str) -> ConsumerMember:
    member = group.members.get(member_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    return member


def _stale(member: ConsumerMember) -> KafkaError:
    if member.classic is not None:
        return KafkaError(ErrorCode.ILLEGAL_GENERATION)
    return KafkaError(ErrorCode.STALE_MEMBER_EPOCH)
