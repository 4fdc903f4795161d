"""Producers and transactions: their ids, their partitions, their end and their state."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.coordinator import GROUP_TOPIC
from lakelog.coordinator.shard import Reply, coordinator_code
from lakelog.coordinator.transaction.endings import Marker
from lakelog.coordinator.transaction.producers import fenced_code
from lakelog.coordinator.transaction.state import TopicPartition, TransactionVersion
from lakelog.coordinator.transaction.transitions import Producer
from lakelog.metadata.controller.topics import check_topic_name
from lakelog.protocol import transactions as messages
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi
from lakelog.storage.producers.state import ProducerEntry

_FENCED_SINCE = 4


async def init_producer_id(
    broker: Broker, context: Context, request: messages.InitProducerIdRequest
) -> messages.InitProducerIdResponse:
    """InitProducerId (22): returns an id and epoch for an idempotent or transactional producer.

    Without a transactional id every call gets a new id with epoch 0, also a client that asks to
    bump its epoch (KIP-360), as in Apache Kafka. With one, its coordinator decides, and fences the
    previous producer. Clients before version 4 know INVALID_PRODUCER_EPOCH instead of
    PRODUCER_FENCED.

    The response has INVALID_REQUEST for an empty transactional id, and for a producer id without an
    epoch or an epoch without an id (KIP-360).
    """
    if request.transactional_id == "":
        return _no_producer_id(ErrorCode.INVALID_REQUEST)
    if (request.producer_id < 0) != (request.producer_epoch < 0):
        return _no_producer_id(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return await _transactional(broker, context, request)
    try:
        producer_id = await broker.producer_ids.next()
    except KafkaError as error:
        return _no_producer_id(error.code)
    return messages.InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


async def _transactional(
    broker: Broker, context: Context, request: messages.InitProducerIdRequest
) -> messages.InitProducerIdResponse:
    if request.run is not None or request.parent is not None:
        return await broker.transactions.sinks.initialise(request)
    answer = await broker.transactions.init_producer_id(request)
    if answer.code is ErrorCode.PRODUCER_FENCED and context.version < _FENCED_SINCE:
        return _no_producer_id(ErrorCode.INVALID_PRODUCER_EPOCH)
    return messages.InitProducerIdResponse(
        error_code=answer.code,
        producer_id=answer.producer_id,
        producer_epoch=answer.producer_epoch,
    )


def _no_producer_id(code: ErrorCode) -> messages.InitProducerIdResponse:
    return messages.InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


def describe_producers(
    broker: Broker, context: Context, request: messages.DescribeProducersRequest
) -> messages.DescribeProducersResponse:
    """DescribeProducers (61): returns the producers that the log of each partition knows (KIP-664).

    A partition that is named twice is described once.
    """
    by_topic: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        by_topic.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    ids = frozenset(request.producer_ids)
    topics = [
        messages.TopicResponse(
            name=name, partitions=[_producers_of(broker, name, index, ids) for index in indexes]
        )
        for name, indexes in by_topic.items()
    ]
    return messages.DescribeProducersResponse(topics=topics)


def _producers_of(
    broker: Broker, topic: str, index: int, ids: frozenset[int]
) -> messages.PartitionResponse:
    try:
        check_topic_name(topic)
        partition = broker.partitions.leader(topic, index)
    except KafkaError as error:
        return messages.PartitionResponse(
            partition_index=index, error_code=error.code, error_message=error.message or None
        )
    entries = partition.log.producers.entries
    if ids:
        entries = {
            producer_id: entries[producer_id] for producer_id in ids if producer_id in entries
        }
    return messages.PartitionResponse(
        partition_index=index,
        active_producers=[_state(producer_id, entry) for producer_id, entry in entries.items()],
    )


def _state(producer_id: int, entry: ProducerEntry) -> messages.ProducerState:
    return messages.ProducerState(
        producer_id=producer_id,
        producer_epoch=entry.epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.txn_first_offset,
    )


_BATCHED_SINCE = 4
_ABORTABLE_SINCE = 5
Codes = Mapping[TopicPartition, ErrorCode]
_NONE = -1


async def add_partitions_to_txn(
    broker: Broker, context: Context, request: messages.AddPartitionsToTxnRequest
) -> messages.AddPartitionsToTxnResponse:
    """AddPartitionsToTxn (24): makes partitions part of a transaction.

    Clients name the partitions of one transaction; from version 4 on brokers verify or add
    partitions of several transactions (KIP-890).
    """
    if context.version < _BATCHED_SINCE:
        topics = request.v3_and_below_topics
        codes = await _add_for_client(broker, context, request)
        return messages.AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=_partition_results(topics, codes)
        )
    # All are decided before the first one is awaited: their records are replicated side by side.
    decided = [(transaction, _decide(broker, transaction)) for transaction in request.transactions]
    results = [
        messages.AddPartitionsToTxnResult(
            transactional_id=transaction.transactional_id,
            topic_results=_partition_results(
                transaction.topics, _coded(await pending, context.version)
            ),
        )
        for transaction, pending in decided
    ]
    return messages.AddPartitionsToTxnResponse(results_by_transaction=results)


async def _add_for_client(
    broker: Broker, context: Context, request: messages.AddPartitionsToTxnRequest
) -> Codes:
    partitions = _keys(request.v3_and_below_topics)
    refused = _unknown(broker, partitions)
    if refused:
        return refused
    producer = Producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    code = await broker.transactions.add_partitions(
        request.v3_and_below_transactional_id, producer, partitions, TransactionVersion.CLASSIC
    )
    return dict.fromkeys(partitions, fenced_code(code, context.version))


def _decide(
    broker: Broker, transaction: messages.AddPartitionsToTxnTransaction
) -> Awaitable[Codes]:
    partitions = _keys(transaction.topics)
    refused = _unknown(broker, partitions)
    if refused:
        return _refused(refused)
    return broker.transactions.verify(
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        partitions,
        add=not transaction.verify_only,
    )


async def _refused(codes: Codes) -> Codes:
    return codes


def _coded(codes: Codes, version: int) -> Codes:
    """Return the codes as this version of the request has them."""
    if version >= _ABORTABLE_SINCE:
        return codes
    return {
        key: ErrorCode.INVALID_TXN_STATE if code is ErrorCode.TRANSACTION_ABORTABLE else code
        for key, code in codes.items()
    }


def _keys(topics: Iterable[messages.AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return [(topic.name, partition) for topic in topics for partition in topic.partitions]


def _unknown(broker: Broker, partitions: Sequence[TopicPartition]) -> Codes:
    """Return errors for all partitions if one does not exist; otherwise an empty mapping."""
    unknown = {
        (topic, partition)
        for topic, partition in partitions
        if not 0 <= partition < broker.topics.partition_count(topic)
    }
    if not unknown:
        return {}
    return {
        key: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if key in unknown
        else ErrorCode.OPERATION_NOT_ATTEMPTED
        for key in partitions
    }


def _partition_results(
    topics: Iterable[messages.AddPartitionsToTxnTopic], codes: Codes
) -> list[messages.AddPartitionsToTxnTopicResult]:
    return [
        messages.AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                messages.AddPartitionsToTxnPartitionResult(
                    partition_index=partition,
                    partition_error_code=codes[topic.name, partition],
                )
                for partition in topic.partitions
            ],
        )
        for topic in topics
    ]


async def add_offsets_to_txn(
    broker: Broker, context: Context, request: messages.AddOffsetsToTxnRequest
) -> messages.AddOffsetsToTxnResponse:
    """AddOffsetsToTxn (25): makes the partition of a group's offsets part of a transaction."""
    try:
        await broker.topics.ensure_group_topic()
    except KafkaError as error:
        return messages.AddOffsetsToTxnResponse(error_code=coordinator_code(error.code))
    code = await broker.transactions.add_partitions(
        request.transactional_id,
        Producer(request.producer_id, request.producer_epoch),
        [(GROUP_TOPIC, broker.groups.partition_for(request.group_id))],
        TransactionVersion.CLASSIC,
    )
    return messages.AddOffsetsToTxnResponse(error_code=fenced_code(code, context.version))


def end_txn(
    broker: Broker, context: Context, request: messages.EndTxnRequest
) -> Reply[messages.EndTxnResponse]:
    """EndTxn (26): commits or aborts a transaction.

    From version 5 on the response has the producer id and epoch of the next transaction (KIP-890).
    With a commit set it ends a batch of a sink (ADR 8).
    """
    if request.commit_set is not None or request.removes_sink:
        return broker.transactions.sinks.end(request)
    return broker.transactions.end_txn(request, context.version)


async def write_txn_markers(
    broker: Broker, context: Context, request: messages.WriteTxnMarkersRequest
) -> messages.WriteTxnMarkersResponse:
    """WriteTxnMarkers (27): ends transactions in partitions without asking their coordinator.

    Coordinators send it to the partitions' leaders. An administrator sends it to abort a hanging
    transaction, which its coordinator does not know any more (KIP-664). Version 1 has no
    transaction version; such a request is treated as of version 1.

    The response has one result for each producer, even if it is named twice.
    """
    results: dict[int, messages.WritableTxnMarkerResult] = {}
    for marker in request.markers:
        result = results.setdefault(
            marker.producer_id, messages.WritableTxnMarkerResult(producer_id=marker.producer_id)
        )
        for topic in marker.topics:
            indexes = topic.partition_indexes
            codes = await _write_markers(broker, marker, topic.name, indexes)
            written = [
                messages.WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                for index, code in zip(indexes, codes, strict=True)
            ]
            result.topics.append(
                messages.WritableTxnMarkerTopicResult(name=topic.name, partitions=written)
            )
    return messages.WriteTxnMarkersResponse(markers=list(results.values()))


async def _write_markers(
    broker: Broker, marker: messages.WritableTxnMarker, topic: str, indexes: Sequence[int]
) -> Sequence[ErrorCode]:
    refusal = _refusal(marker)
    if refusal is not None:
        return [_absence(broker, topic, index) or refusal for index in indexes]
    return await broker.markers.write(
        [
            Marker(
                topic,
                index,
                marker.producer_id,
                marker.producer_epoch,
                marker.transaction_result,
                marker.coordinator_epoch,
                marker.transaction_version,
                marker.decision,
            )
            for index in indexes
        ]
    )


def _absence(broker: Broker, topic: str, index: int) -> ErrorCode:
    try:
        broker.partitions.leader(topic, index)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def _refusal(marker: messages.WritableTxnMarker) -> ErrorCode | None:
    """Return Kafka's error code for an impossible producer, and one for ids below -1.

    Kafka fails to build a marker without producer or epoch (-1), and writes one for lower ids.
    """
    if _NONE in (marker.producer_id, marker.producer_epoch):
        return ErrorCode.UNKNOWN_SERVER_ERROR
    if marker.producer_id < 0:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.INVALID_PRODUCER_EPOCH if marker.producer_epoch < 0 else None


def describe_transactions(
    broker: Broker, context: Context, request: messages.DescribeTransactionsRequest
) -> messages.DescribeTransactionsResponse:
    """DescribeTransactions (65): returns the state of transactional ids (KIP-664)."""
    return broker.transactions.admin.describe_transactions(request)


def list_transactions(
    broker: Broker, context: Context, request: messages.ListTransactionsRequest
) -> messages.ListTransactionsResponse:
    """ListTransactions (66): lists transactions by state, producer id, duration and pattern."""
    return broker.transactions.admin.list_transactions(request)


APIS = (
    ServedApi(
        messages.InitProducerIdRequest,
        init_producer_id,
        done="Idempotent and transactional producers; in tagged fields, sinks and their tasks.",
        missing="Two-phase commit (version 6 is not stable in Kafka either).",
    ),
    ServedApi(messages.DescribeProducersRequest, describe_producers, done="All."),
    ServedApi(
        messages.AddPartitionsToTxnRequest,
        add_partitions_to_txn,
        done="Requests of clients and of other brokers.",
    ),
    ServedApi(messages.AddOffsetsToTxnRequest, add_offsets_to_txn, done="All."),
    ServedApi(
        messages.EndTxnRequest,
        end_txn,
        done="Both flows; version 5 raises the epoch. In tagged fields, commit sets of sinks.",
    ),
    ServedApi(
        messages.WriteTxnMarkersRequest,
        write_txn_markers,
        done="Requests of administrators and of other brokers.",
    ),
    ServedApi(messages.DescribeTransactionsRequest, describe_transactions, done="All."),
    ServedApi(
        messages.ListTransactionsRequest,
        list_transactions,
        done="Filters of states, producer ids, duration and pattern.",
    ),
)
