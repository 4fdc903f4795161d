"""The ids of producers, and the producers that a log knows."""

from __future__ import annotations

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.controller.topics import check_topic_name
from lakelog.protocol import producers as messages
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


APIS = (
    ServedApi(
        messages.InitProducerIdRequest,
        init_producer_id,
        done="Idempotent and transactional producers; in tagged fields, sinks and their tasks.",
        missing="Two-phase commit (version 6 is not stable in Kafka either).",
    ),
    ServedApi(messages.DescribeProducersRequest, describe_producers, done="All."),
)
