"""TxnOffsetCommit, versions 0 to 6: offsets that a producer commits with its transaction (KIP-98,
KIP-447). `pending` keeps them until the transaction ends.
"""

from __future__ import annotations

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.classic.group import ClassicGroup, GroupState
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


def check_txn_commit(
    group: ClassicGroup | None, known: bool, request: TxnOffsetCommitRequest, version: int
) -> None:
    """Raise `KafkaError` unless the sender may commit offsets with its transaction.

    A client that sends neither member id nor generation, as clients before KIP-447 do, is not
    checked: only the epoch of its producer fences it.

    Args:
        group: None if the group never had members.
        known: whether the group has committed or pending offsets.

    Raises GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID or ILLEGAL_GENERATION.
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
