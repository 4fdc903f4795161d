"""DescribeProducers (61): returns the producers that the log of each partition knows (KIP-664)."""

from __future__ import annotations

from lakelog.base.errors import KafkaError
from lakelog.metadata.controller.topics import check_topic_name
from lakelog.protocol.producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi
from lakelog.storage.producers.state import ProducerEntry


def handle(
    broker: Broker, context: Context, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    """Return the producers of each partition, or its error code; each partition once."""
    by_topic: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        by_topic.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    ids = frozenset(request.producer_ids)
    topics = [
        TopicResponse(
            name=name, partitions=[_describe(broker, name, index, ids) for index in indexes]
        )
        for name, indexes in by_topic.items()
    ]
    return DescribeProducersResponse(topics=topics)


API = ServedApi(DescribeProducersRequest, handle, done="All.")


def _describe(broker: Broker, topic: str, index: int, ids: frozenset[int]) -> PartitionResponse:
    try:
        check_topic_name(topic)
        partition = broker.partitions.leader(topic, index)
    except KafkaError as error:
        return PartitionResponse(
            partition_index=index, error_code=error.code, error_message=error.message or None
        )
    entries = partition.log.producers.entries
    if ids:
        entries = {
            producer_id: entries[producer_id] for producer_id in ids if producer_id in entries
        }
    return PartitionResponse(
        partition_index=index,
        active_producers=[_state(producer_id, entry) for producer_id, entry in entries.items()],
    )


def _state(producer_id: int, entry: ProducerEntry) -> ProducerState:
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=entry.epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.txn_first_offset,
    )
