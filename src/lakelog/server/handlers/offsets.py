"""The committed offsets of groups."""

from __future__ import annotations

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.coordinator import GROUP_TOPIC
from lakelog.coordinator.group.offset_commits import refuse_txn_commit
from lakelog.coordinator.shard import Reply, coordinator_code
from lakelog.protocol.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi

_ABORTABLE_SINCE = 4
_ADDS_SINCE = 5
_TOPIC_IDS_SINCE = 6
_LOADING_SINCE = 2
_NO_SEQUENCE = -1


def offset_commit(
    broker: Broker, context: Context, request: OffsetCommitRequest
) -> Reply[OffsetCommitResponse]:
    """OffsetCommit (8): commits the offsets of a group, or of a client outside of any group.

    The response waits until the offsets are committed in the group's partition. Version 10 names
    topics by their ids.
    """
    return broker.groups.offset_commit(request, context.version)


def offset_fetch(
    broker: Broker, context: Context, request: OffsetFetchRequest
) -> Reply[OffsetFetchResponse]:
    """OffsetFetch (9): returns the committed offsets of one group, or from version 8 on of several.

    From version 7 on, a client can require that no transaction has offsets pending (KIP-447).
    """
    return broker.groups.offset_fetch(request, context.version)


def offset_delete(
    broker: Broker, context: Context, request: OffsetDeleteRequest
) -> Reply[OffsetDeleteResponse]:
    """OffsetDelete (47): deletes committed offsets of topics without a subscribed member."""
    return broker.groups.admin.offset_delete(request)


async def txn_offset_commit(
    broker: Broker, context: Context, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    """TxnOffsetCommit (28): commits the offsets of a group when the transaction is committed.

    The coordinators decide. The handler checks whether the partitions exist and whether the group's
    partition is part of the transaction, and maps error codes for each version. Unknown partitions
    have errors; if all are unknown, neither the group nor the transaction is checked.
    """
    existence = _existence(broker, request, context.version)
    if all(partition.error_code for topic in existence.topics for partition in topic.partitions):
        return existence
    response = await _commit_offsets(broker, request, context.version)
    for topic, known_topic in zip(response.topics, existence.topics, strict=True):
        for partition, known_partition in zip(
            topic.partitions, known_topic.partitions, strict=True
        ):
            partition.error_code = known_partition.error_code or partition.error_code
    return response


def _existence(
    broker: Broker, request: TxnOffsetCommitRequest, version: int
) -> TxnOffsetCommitResponse:
    """Return a response with an error for each unknown partition."""
    response = refuse_txn_commit(request, ErrorCode.NONE)
    for topic in response.topics:
        by_id = version >= _TOPIC_IDS_SINCE
        name = broker.topics.topic_name(topic.topic_id) if by_id else topic.name
        count = 0 if name is None else broker.topics.partition_count(name)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for partition in topic.partitions:
            if not 0 <= partition.partition_index < count:
                partition.error_code = ErrorCode.UNKNOWN_TOPIC_ID if name is None else unknown
    return response


async def _commit_offsets(
    broker: Broker, request: TxnOffsetCommitRequest, version: int
) -> TxnOffsetCommitResponse:
    """Commit if the group's partition is part of the transaction (KAFKA-15449)."""
    if not request.group_id:
        return refuse_txn_commit(request, ErrorCode.INVALID_GROUP_ID)
    code = await _verified(broker, request, adds=version >= _ADDS_SINCE)
    if code is not ErrorCode.NONE:
        return refuse_txn_commit(request, _code_for(code, version))
    response: TxnOffsetCommitResponse = await broker.groups.txn_offset_commit(request, version)
    return response


async def _verified(broker: Broker, request: TxnOffsetCommitRequest, *, adds: bool) -> ErrorCode:
    """Verify as for the first batch of a transaction: a marker in between voids the result."""
    key = (GROUP_TOPIC, broker.groups.partition_for(request.group_id))
    producer = (request.producer_id, request.producer_epoch)
    try:
        broker.partitions.leader(*key).start_verification(
            *producer, _NO_SEQUENCE, broker.clock.wall_ms(), supports_epoch_bump=adds
        )
    except KafkaError as error:
        return coordinator_code(error.code)
    codes = await broker.verification.verify(request.transactional_id, *producer, [key], add=adds)
    code: ErrorCode = codes[key]
    return code


def _code_for(code: ErrorCode, version: int) -> ErrorCode:
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _LOADING_SINCE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code


APIS = (
    ServedApi(
        OffsetCommitRequest,
        offset_commit,
        done="Both group protocols, clients outside a group, by topic id.",
    ),
    ServedApi(
        OffsetFetchRequest, offset_fetch, done="One group or many, require_stable, by topic id."
    ),
    ServedApi(OffsetDeleteRequest, offset_delete, done="All."),
    ServedApi(
        TxnOffsetCommitRequest, txn_offset_commit, done="With the fencing of groups (KIP-447)."
    ),
)
