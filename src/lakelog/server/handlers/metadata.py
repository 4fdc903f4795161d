"""Brokers, topics, partitions and their leaders, for clients."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.uuids import ZERO_UUID
from lakelog.metadata.controller.topics import check_topic_name
from lakelog.metadata.failover import PartitionImage
from lakelog.metadata.image import TopicImage
from lakelog.protocol import metadata as messages
from lakelog.server.broker import Broker, Node
from lakelog.server.requests.context import DEFERRED, Context, Deferred
from lakelog.server.served_api import ServedApi
from lakelog.server.topics.responses import Availability
from lakelog.server.topics.topics import INTERNAL_TOPICS, TOPIC_OPERATIONS

_CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))
"""Bits of Kafka's AclOperation codes; without an authorizer everything is allowed."""
_Reference = tuple[str | None, bytes]
"""A topic by name, or by id."""
_NOT_REQUESTED = -(2**31)
_NULL_MEANS_ALL_SINCE = 1
_TOPIC_IDS_SINCE = 12
_NO_LEASE = -1
_NO_CONTROLLER = -1


def metadata(
    broker: Broker, context: Context, request: messages.MetadataRequest
) -> messages.MetadataResponse | Coroutine[Any, Any, messages.MetadataResponse] | Deferred:
    """Metadata (3): returns brokers, topics, partitions and their leaders.

    A topic that does not exist is created if both the request and `auto.create.topics.enable` allow
    it. The response describes the new topic, so that a client need not ask again.
    """
    if request.lease_of != _NO_LEASE:
        # An earlier version takes this answer for a lease only if it names the controller. Leases
        # are granted by BrokerHeartbeat.
        return messages.MetadataResponse(controller_id=_NO_CONTROLLER)
    if broker.failed_brokers:
        return _after_failures(broker, context, request)
    if _asks_for_all(request, context.version):
        return _answer_all(broker, context, request)
    references = _references(request)
    missing = _missing_topics(broker, request, references)
    if missing:
        return _create_first(broker, context, request, references, missing)
    return _response(broker, context, request, references, {})


def _asks_for_all(request: messages.MetadataRequest, version: int) -> bool:
    """Return whether the request has no list: null, or empty in version 0."""
    return request.topics is None or (not request.topics and version < _NULL_MEANS_ALL_SINCE)


def _nodes(broker: Broker, context: Context) -> list[Node]:
    """Return the brokers that serve, and the newly fenced ones, see `FailedBrokers`."""
    nodes, fenced = broker.nodes_for(context.connection), broker.fenced_nodes_for
    listed = broker.failed_brokers.is_listed
    return nodes + [node for node in fenced(context.connection) if listed(node.node_id)]


def _references(request: messages.MetadataRequest) -> list[_Reference]:
    return list(dict.fromkeys((topic.name, topic.topic_id) for topic in request.topics or ()))


def _every_topic(broker: Broker) -> list[_Reference]:
    # Not in the order of the image, which depends on hashes of this process.
    return [(name, ZERO_UUID) for name in sorted(broker.image.topic_ids)]


async def _after_failures(
    broker: Broker, context: Context, request: messages.MetadataRequest
) -> messages.MetadataResponse:
    """Wait until lost leaders have successors, see `FailedBrokers`."""
    await broker.failed_brokers.wait()
    if _asks_for_all(request, context.version):
        return _response(broker, context, request, _every_topic(broker), {})
    references = _references(request)
    missing = _missing_topics(broker, request, references)
    if missing:
        return await _create_first(broker, context, request, references, missing)
    return _response(broker, context, request, references, {})


def _answer_all(
    broker: Broker, context: Context, request: messages.MetadataRequest
) -> messages.MetadataResponse | Deferred:
    """Describe all topics. Clients request them often, so the encoded response is kept."""
    key = (
        context.version,
        request.include_topic_authorized_operations,
        request.include_cluster_authorized_operations,
        tuple(_nodes(broker, context)),
        broker.partitions.offline_keys,
    )
    cache = broker.known_metadata
    frame = cache.find(broker.image, key)
    if frame is None:
        every = _every_topic(broker)
        frame = context.encode(_response(broker, context, request, every, {}))
        cache.keep(broker.image, key, frame)
    context.reply_encoded(frame)
    return DEFERRED


async def _create_first(
    broker: Broker,
    context: Context,
    request: messages.MetadataRequest,
    references: list[_Reference],
    missing: list[str],
) -> messages.MetadataResponse:
    """Create the `missing` topics first; return their metadata, or the errors of creation."""
    try:
        refused = await broker.topics.ensure(missing)
    except KafkaError as error:
        refused = dict.fromkeys(missing, error.code)
    return _response(broker, context, request, references, refused)


def _response(
    broker: Broker,
    context: Context,
    request: messages.MetadataRequest,
    references: list[_Reference],
    refused: dict[str, ErrorCode],
) -> messages.MetadataResponse:
    availability = Availability.of(broker.node_id, broker.image, broker.partitions)
    topics = [
        _described(broker, name, topic_id, context.version, refused, availability)
        for name, topic_id in references
    ]
    if request.include_topic_authorized_operations:
        for topic in topics:
            if not topic.error_code:
                topic.topic_authorized_operations = TOPIC_OPERATIONS
    wants_cluster = request.include_cluster_authorized_operations
    return messages.MetadataResponse(
        brokers=[
            messages.MetadataResponseBroker(
                node_id=node.node_id, host=node.host, port=node.port, rack=node.rack
            )
            for node in _nodes(broker, context)
        ],
        cluster_id=broker.cluster_id,
        controller_id=broker.metadata.controller_id,
        topics=topics,
        cluster_authorized_operations=_CLUSTER_OPERATIONS if wants_cluster else _NOT_REQUESTED,
    )


def _missing_topics(
    broker: Broker, request: messages.MetadataRequest, references: list[_Reference]
) -> list[str]:
    """Return the topics to create, if that is allowed."""
    missing = [
        name
        for name, topic_id in references
        if name is not None and topic_id == ZERO_UUID and broker.image.topic(name) is None
    ]
    allowed = request.allow_auto_topic_creation
    if not allowed or not broker.config.get_bool("auto.create.topics.enable"):
        return []
    return missing


def _described(
    broker: Broker,
    name: str | None,
    topic_id: bytes,
    version: int,
    refused: dict[str, ErrorCode],
    availability: Availability,
) -> messages.MetadataResponseTopic:
    if topic_id != ZERO_UUID or name is None:
        return _by_id(broker, name, topic_id, version, availability)
    topic = broker.image.topic(name)
    if topic is None:
        return messages.MetadataResponseTopic(
            error_code=refused.get(name) or _missing(name), name=name
        )
    return _topic(topic, availability)


def _missing(name: str) -> ErrorCode:
    try:
        check_topic_name(name)
    except KafkaError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _by_id(
    broker: Broker, name: str | None, topic_id: bytes, version: int, availability: Availability
) -> messages.MetadataResponseTopic:
    """Return the topic by id, from version 12 on, or by name; ids in older versions are errors."""
    if version < _TOPIC_IDS_SINCE or topic_id == ZERO_UUID:
        return messages.MetadataResponseTopic(
            error_code=ErrorCode.INVALID_REQUEST, name=name or "", topic_id=topic_id
        )
    topic = broker.image.topic_by_id(topic_id)
    if topic is None:
        return messages.MetadataResponseTopic(
            error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id
        )
    return _topic(topic, availability)


def _topic(topic: TopicImage, availability: Availability) -> messages.MetadataResponseTopic:
    return messages.MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            _partition(topic.topic_id, partition, availability)
            for _, partition in sorted(topic.partitions.items())
        ],
    )


def _partition(
    topic_id: bytes, partition: PartitionImage, availability: Availability
) -> messages.MetadataResponsePartition:
    leader, error = availability.leader(topic_id, partition)
    return messages.MetadataResponsePartition(
        error_code=error,
        partition_index=partition.partition,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=availability.offline_replicas(topic_id, partition),
    )


def describe_topic_partitions(
    broker: Broker, context: Context, request: messages.DescribeTopicPartitionsRequest
) -> messages.DescribeTopicPartitionsResponse:
    """DescribeTopicPartitions (75): returns topics in the order of names, by pages (KIP-966).

    A page ends after the requested number of partitions, or at `max.request.partition.size.limit`;
    its cursor is the start of the next page.
    """
    start = request.cursor or messages.Cursor(topic_name="", partition_index=0)
    asked = {topic.name for topic in request.topics}
    if start.partition_index < 0 or (request.cursor and asked and start.topic_name not in asked):
        return _refused_page(request, ErrorCode.INVALID_REQUEST)
    limit = broker.config.get_int("max.request.partition.size.limit")
    capacity = max(min(limit, request.response_partition_limit), 1)
    response = messages.DescribeTopicPartitionsResponse()
    availability = Availability.of(broker.node_id, broker.image, broker.partitions)
    for name in _names(broker, asked, start):
        if not capacity:
            response.next_cursor = messages.Cursor(topic_name=name, partition_index=0)
            break
        first = start.partition_index if name == start.topic_name else 0
        topic = broker.image.topic(name)
        if topic is None:
            absent = messages.DescribeTopicPartitionsResponseTopic(
                error_code=_missing(name), name=name, topic_authorized_operations=TOPIC_OPERATIONS
            )
            response.topics.append(absent)
            continue
        last = min(first + capacity, len(topic))
        response.topics.append(_page_topic(topic, range(first, last), availability))
        capacity -= max(last - first, 0)
        if last < len(topic):
            response.next_cursor = messages.Cursor(topic_name=name, partition_index=last)
            break
    return response


def _names(broker: Broker, asked: set[str], start: messages.Cursor) -> list[str]:
    names = asked or set(broker.image.topic_ids)
    return sorted(name for name in names if name >= start.topic_name)


def _page_topic(
    topic: TopicImage, numbers: range, availability: Availability
) -> messages.DescribeTopicPartitionsResponseTopic:
    return messages.DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            _page_partition(topic.topic_id, topic.partitions[number], availability)
            for number in numbers
        ],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _page_partition(
    topic_id: bytes, partition: PartitionImage, availability: Availability
) -> messages.DescribeTopicPartitionsResponsePartition:
    leader, error = availability.leader(topic_id, partition)
    return messages.DescribeTopicPartitionsResponsePartition(
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


def _refused_page(
    request: messages.DescribeTopicPartitionsRequest, code: ErrorCode
) -> messages.DescribeTopicPartitionsResponse:
    return messages.DescribeTopicPartitionsResponse(
        topics=[
            messages.DescribeTopicPartitionsResponseTopic(error_code=code, name=topic.name)
            for topic in request.topics
        ]
    )


APIS = (
    ServedApi(
        messages.MetadataRequest, metadata, done="By name and by id, with creation of topics."
    ),
    ServedApi(
        messages.DescribeTopicPartitionsRequest,
        describe_topic_partitions,
        done="Pages with cursors and limits, eligible leader replicas.",
    ),
)
