"""AddPartitionsToTxn (24): makes partitions part of a transaction.

Clients name the partitions of one transaction; from version 4 on brokers verify or add partitions
of several transactions (KIP-890).
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.transaction.producers import fenced_code
from lakelog.coordinator.transaction.state import TopicPartition, TransactionVersion
from lakelog.coordinator.transaction.transitions import Producer
from lakelog.protocol.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi

_BATCHED_SINCE = 4
_ABORTABLE_SINCE = 5

Codes = Mapping[TopicPartition, ErrorCode]


async def handle(
    broker: Broker, context: Context, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    if context.version < _BATCHED_SINCE:
        topics = request.v3_and_below_topics
        codes = await _add_for_client(broker, context, request)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(topics, codes))
    # All are decided before the first one is awaited: their records are replicated side by side.
    decided = [(transaction, _decide(broker, transaction)) for transaction in request.transactions]
    results = [
        AddPartitionsToTxnResult(
            transactional_id=transaction.transactional_id,
            topic_results=_results(transaction.topics, _coded(await pending, context.version)),
        )
        for transaction, pending in decided
    ]
    return AddPartitionsToTxnResponse(results_by_transaction=results)


API = ServedApi(AddPartitionsToTxnRequest, handle, done="Requests of clients and of other brokers.")


async def _add_for_client(
    broker: Broker, context: Context, request: AddPartitionsToTxnRequest
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


def _decide(broker: Broker, transaction: AddPartitionsToTxnTransaction) -> Awaitable[Codes]:
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


def _keys(topics: Iterable[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
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
