"""DescribeTopicPartitions (75): returns topics in the order of names, by pages (KIP-966).

A page ends after the requested number of partitions, or at `max.request.partition.size.limit`; its
cursor is the start of the next page.
"""

from __future__ import annotations

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.controller.topics import check_topic_name
from lakelog.metadata.failover import PartitionImage
from lakelog.metadata.image import TopicImage
from lakelog.protocol.metadata import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi
from lakelog.server.topics.availability import Availability
from lakelog.server.topics.topics import INTERNAL_TOPICS, TOPIC_OPERATIONS


def handle(
    broker: Broker, context: Context, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    start = request.cursor or Cursor(topic_name="", partition_index=0)
    asked = {topic.name for topic in request.topics}
    if start.partition_index < 0 or (request.cursor and asked and start.topic_name not in asked):
        return _refused(request, ErrorCode.INVALID_REQUEST)
    limit = broker.config.get_int("max.request.partition.size.limit")
    capacity = max(min(limit, request.response_partition_limit), 1)
    response = DescribeTopicPartitionsResponse()
    availability = Availability.of(broker.node_id, broker.image, broker.partitions)
    for name in _names(broker, asked, start):
        if not capacity:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        first = start.partition_index if name == start.topic_name else 0
        topic = broker.image.topic(name)
        if topic is None:
            response.topics.append(_missing(name))
            continue
        last = min(first + capacity, len(topic))
        response.topics.append(_described(topic, range(first, last), availability))
        capacity -= max(last - first, 0)
        if last < len(topic):
            response.next_cursor = Cursor(topic_name=name, partition_index=last)
            break
    return response


API = ServedApi(
    DescribeTopicPartitionsRequest,
    handle,
    done="Pages with cursors and limits, eligible leader replicas.",
)


def _names(broker: Broker, asked: set[str], start: Cursor) -> list[str]:
    names = asked or set(broker.image.topic_ids)
    return sorted(name for name in names if name >= start.topic_name)


def _described(
    topic: TopicImage, numbers: range, availability: Availability
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            _partition(topic.topic_id, topic.partitions[number], availability) for number in numbers
        ],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _partition(
    topic_id: bytes, partition: PartitionImage, availability: Availability
) -> DescribeTopicPartitionsResponsePartition:
    leader, error = availability.leader(topic_id, partition)
    return DescribeTopicPartitionsResponsePartition(
        error_code=error,
        partition_index=partition.partition,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.elr),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=availability.offline_replicas(topic_id, partition),
    )


def _missing(name: str) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_topic_name(name)
    except KafkaError as error:
        code = error.code
    return DescribeTopicPartitionsResponseTopic(
        error_code=code, name=name, topic_authorized_operations=TOPIC_OPERATIONS
    )


def _refused(
    request: DescribeTopicPartitionsRequest, code: ErrorCode
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(error_code=code, name=topic.name)
            for topic in request.topics
        ]
    )
