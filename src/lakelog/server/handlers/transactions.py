"""The APIs of transactions: AddPartitionsToTxn (24), AddOffsetsToTxn (25), EndTxn (26),
TxnOffsetCommit (28), DescribeTransactions (65) and ListTransactions (66).

What is decided is decided in the coordinators. What is left here is the shape of each version, and
that clients of before PRODUCER_FENCED are told INVALID_PRODUCER_EPOCH instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.coordinator import GROUP_TOPIC
from lakelog.coordinator.group.offsets.txn_commit import refuse_txn_commit
from lakelog.coordinator.shard import coordinator_code
from lakelog.coordinator.transaction.state import TopicPartition, TransactionVersion
from lakelog.coordinator.transaction.transitions import Producer
from lakelog.protocol.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from lakelog.protocol.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from lakelog.protocol.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from lakelog.protocol.end_txn import EndTxnRequest, EndTxnResponse
from lakelog.protocol.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from lakelog.protocol.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context

_BATCHED_SINCE = 4
_FENCED_SINCE = 2
_ABORTABLE_SINCE = 5
_TXN_COMMIT_ABORTABLE_SINCE = 4
_TXN_COMMIT_ADDS_SINCE = 5
_TXN_COMMIT_TOPIC_IDS_SINCE = 6
_LOADING_SINCE = 2
NO_SEQUENCE = -1

Codes = Mapping[TopicPartition, ErrorCode]


# AddPartitionsToTxn


async def add_partitions(
    broker: Broker, context: Context, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    if context.version < _BATCHED_SINCE:
        topics = request.v3_and_below_topics
        codes = await _add_for_client(broker, context, request)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(topics, codes))
    results = [
        AddPartitionsToTxnResult(
            transactional_id=each.transactional_id,
            topic_results=_results(each.topics, await _add_for_broker(broker, context, each)),
        )
        for each in request.transactions
    ]
    return AddPartitionsToTxnResponse(results_by_transaction=results)


async def _add_for_client(
    broker: Broker, context: Context, request: AddPartitionsToTxnRequest
) -> Codes:
    wanted = _keys(request.v3_and_below_topics)
    refused = _unknown(broker, wanted)
    if refused:
        return refused
    producer = Producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    code = await broker.transactions.add_partitions(
        request.v3_and_below_transactional_id, producer, wanted, TransactionVersion.CLASSIC
    )
    return dict.fromkeys(wanted, _fenced(code, context.version))


async def _add_for_broker(
    broker: Broker, context: Context, each: AddPartitionsToTxnTransaction
) -> Codes:
    wanted = _keys(each.topics)
    refused = _unknown(broker, wanted)
    if refused:
        return refused
    codes: Codes = await broker.transactions.verify(
        each.transactional_id,
        each.producer_id,
        each.producer_epoch,
        wanted,
        add=not each.verify_only,
    )
    if context.version >= _ABORTABLE_SINCE:
        return codes
    return {
        key: ErrorCode.INVALID_TXN_STATE if code is ErrorCode.TRANSACTION_ABORTABLE else code
        for key, code in codes.items()
    }


def _keys(topics: Iterable[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return [(topic.name, partition) for topic in topics for partition in topic.partitions]


def _unknown(broker: Broker, wanted: Sequence[TopicPartition]) -> Codes:
    """One partition that does not exist keeps the others from being added. Empty if all do."""
    unknown = {
        (topic, partition)
        for topic, partition in wanted
        if not 0 <= partition < broker.topics.partition_count(topic)
    }
    if not unknown:
        return {}
    return {
        key: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if key in unknown
        else ErrorCode.OPERATION_NOT_ATTEMPTED
        for key in wanted
    }


def _results(
    topics: Iterable[AddPartitionsToTxnTopic], codes: Codes
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=partition,
                    partition_error_code=codes[topic.name, partition],
                )
                for partition in topic.partitions
            ],
        )
        for topic in topics
    ]


def _fenced(code: ErrorCode, version: int) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED and version < _FENCED_SINCE:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


# Offsets


async def add_offsets(
    broker: Broker, context: Context, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    """The offsets' partition becomes a partition of the transaction like any other."""
    try:
        await broker.topics.ensure_group_topic()
    except KafkaError as error:
        return AddOffsetsToTxnResponse(error_code=coordinator_code(error.code))
    code = await broker.transactions.add_partitions(
        request.transactional_id,
        Producer(request.producer_id, request.producer_epoch),
        [(GROUP_TOPIC, broker.groups.partition_for(request.group_id))],
        TransactionVersion.CLASSIC,
    )
    return AddOffsetsToTxnResponse(error_code=_fenced(code, context.version))


async def txn_offset_commit(
    broker: Broker, context: Context, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    """Partitions that do not exist are told so whatever becomes of the others; without others
    neither the group nor the transaction is looked at."""
    known = _existence(broker, request, context.version)
    if all(partition.error_code for topic in known.topics for partition in topic.partitions):
        return known
    response = await _commit_offsets(broker, request, context.version)
    for topic, known_topic in zip(response.topics, known.topics, strict=True):
        for partition, found in zip(topic.partitions, known_topic.partitions, strict=True):
            partition.error_code = found.error_code or partition.error_code
    return response


def _existence(
    broker: Broker, request: TxnOffsetCommitRequest, version: int
) -> TxnOffsetCommitResponse:
    """What the metadata says of each partition: that it is unknown, or nothing."""
    response = refuse_txn_commit(request, ErrorCode.NONE)
    for topic in response.topics:
        by_id = version >= _TXN_COMMIT_TOPIC_IDS_SINCE
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
    """Whoever commits must have the group's partition in its transaction (KAFKA-15449)."""
    if not request.group_id:
        return refuse_txn_commit(request, ErrorCode.INVALID_GROUP_ID)
    code = await _verified(broker, request, adds=version >= _TXN_COMMIT_ADDS_SINCE)
    if code is not ErrorCode.NONE:
        return refuse_txn_commit(request, _told(code, version))
    response: TxnOffsetCommitResponse = await broker.groups.txn_offset_commit(request, version)
    return response


async def _verified(broker: Broker, request: TxnOffsetCommitRequest, *, adds: bool) -> ErrorCode:
    """As for the first batch of a transaction: a marker that comes between voids it."""
    key = (GROUP_TOPIC, broker.groups.partition_for(request.group_id))
    producer = (request.producer_id, request.producer_epoch)
    try:
        broker.partitions.find(*key).start_verification(
            *producer, NO_SEQUENCE, broker.clock.wall_ms(), supports_epoch_bump=adds
        )
    except KafkaError as error:
        return coordinator_code(error.code)
    codes = await broker.transactions.verify(request.transactional_id, *producer, [key], add=adds)
    code: ErrorCode = codes[key]
    return code


def _told(code: ErrorCode, version: int) -> ErrorCode:
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < _TXN_COMMIT_ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _LOADING_SINCE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code


# The end, and questions


async def end(broker: Broker, context: Context, request: EndTxnRequest) -> EndTxnResponse:
    answer = await broker.transactions.end_txn(request, context.version)
    return EndTxnResponse(
        error_code=_fenced(answer.code, context.version),
        producer_id=answer.producer_id,
        producer_epoch=answer.producer_epoch,
    )


def describe(
    broker: Broker, context: Context, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    return broker.transactions.admin.describe_transactions(request)


def list_all(
    broker: Broker, context: Context, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    return broker.transactions.admin.list_transactions(request)
