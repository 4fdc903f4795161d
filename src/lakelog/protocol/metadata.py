"""The brokers, the topics and the leaders of partitions, for clients."""

from __future__ import annotations

from lakelog.protocol.api import OWN_TAGS, Api
from lakelog.wire import schema as wire


class LeaderIdAndEpoch(wire.Struct):
    """The current leader of the partition; -1 when it is unknown."""

    leader_id: int = wire.int32(default=-1)
    leader_epoch: int = wire.int32(default=-1)


class NodeEndpoint(wire.Struct):
    """The address of a broker in `current_leader`."""

    node_id: int = wire.int32()
    host: str = wire.string()
    port: int = wire.int32()
    rack: str | None = wire.string(nullable="0+", default=None)


class MetadataRequestTopic(wire.Struct):
    """A topic by name, or by id with a null name."""

    topic_id: bytes = wire.uuid("10+")
    name: str | None = wire.string(nullable="10+")


class MetadataRequest(wire.Message, versions="0-13", flexible="9+"):
    """Requests some topics or all; may create missing topics.

    Versions: in 0 an empty list stands for all topics; from 1 on null does, and an empty list
    stands for none. 4 lets the client forbid creation, 8 requests permitted operations, 9 is
    flexible, 10 adds topic ids, which a request may use from 12 on.
    """

    topics: list[MetadataRequestTopic] | None = wire.array(MetadataRequestTopic, nullable="1+")
    allow_auto_topic_creation: bool = wire.boolean("4+", default=True)
    include_cluster_authorized_operations: bool = wire.boolean("8-10")
    include_topic_authorized_operations: bool = wire.boolean("8+")
    lease_of: int = wire.int32("9+", tag=OWN_TAGS, default=-1)
    """The broker that wants a lease, in a request of an earlier version; -1 for other requests."""


class MetadataResponseBroker(wire.Struct):
    """A live broker and its address on this listener."""

    node_id: int = wire.int32()
    host: str = wire.string()
    port: int = wire.int32()
    rack: str | None = wire.string("1+", nullable="0+", default=None)


class MetadataResponsePartition(wire.Struct):
    """Leader and replicas of a partition; leader -1 means no leader."""

    error_code: int = wire.int16()
    partition_index: int = wire.int32()
    leader_id: int = wire.int32()
    leader_epoch: int = wire.int32("7+", default=-1)
    replica_nodes: list[int] = wire.array(wire.int32)
    isr_nodes: list[int] = wire.array(wire.int32)
    offline_replicas: list[int] = wire.array(wire.int32, "5+")


class MetadataResponseTopic(wire.Struct):
    """A topic, or an error; for an unknown id the name is null."""

    error_code: int = wire.int16()
    name: str | None = wire.string(nullable="12+")
    topic_id: bytes = wire.uuid("10+")
    is_internal: bool = wire.boolean("1+")
    partitions: list[MetadataResponsePartition] = wire.array(MetadataResponsePartition)
    topic_authorized_operations: int = wire.int32("8+", default=-(2**31))
    """One bit per operation; the minimum int32 when not requested."""


class MetadataResponse(wire.Message, versions="0-13", flexible="9+"):
    """The cluster as known to this broker.

    Versions: 2 adds the cluster id, 5 offline replicas, 7 leader epochs, 8 permitted operations (of
    the cluster up to 10 only, then DescribeCluster), 10 topic ids, 13 an error for the response.
    """

    throttle_time_ms: int = wire.int32("3+")
    brokers: list[MetadataResponseBroker] = wire.array(MetadataResponseBroker)
    cluster_id: str | None = wire.string("2+", nullable="0+", default=None)
    controller_id: int = wire.int32("1+", default=-1)
    topics: list[MetadataResponseTopic] = wire.array(MetadataResponseTopic)
    cluster_authorized_operations: int = wire.int32("8-10", default=-(2**31))
    """One bit per operation; the minimum int32 when not requested."""
    error_code: int = wire.int16("13+")


class TopicRequest(wire.Struct):
    """A topic by its name."""

    name: str = wire.string()


class Cursor(wire.Struct):
    """The first partition of the next page."""

    topic_name: str = wire.string()
    partition_index: int = wire.int32()


class DescribeTopicPartitionsRequest(wire.Message, versions="0", flexible="0+"):
    """Requests a page of topics; an empty list stands for all topics."""

    topics: list[TopicRequest] = wire.array(TopicRequest)
    response_partition_limit: int = wire.int32(default=2000)
    cursor: Cursor | None = wire.struct(Cursor, nullable="0+", default=None)


class DescribeTopicPartitionsResponsePartition(wire.Struct):
    """One partition; null lists mean that eligible leader replicas are not tracked."""

    error_code: int = wire.int16()
    partition_index: int = wire.int32()
    leader_id: int = wire.int32()
    leader_epoch: int = wire.int32(default=-1)
    replica_nodes: list[int] = wire.array(wire.int32)
    isr_nodes: list[int] = wire.array(wire.int32)
    eligible_leader_replicas: list[int] | None = wire.array(wire.int32, nullable="0+", default=None)
    last_known_elr: list[int] | None = wire.array(wire.int32, nullable="0+", default=None)
    offline_replicas: list[int] = wire.array(wire.int32)


class DescribeTopicPartitionsResponseTopic(wire.Struct):
    """One topic and its partitions on this page."""

    error_code: int = wire.int16()
    name: str | None = wire.string(nullable="0+")
    topic_id: bytes = wire.uuid()
    is_internal: bool = wire.boolean()
    partitions: list[DescribeTopicPartitionsResponsePartition] = wire.array(
        DescribeTopicPartitionsResponsePartition
    )
    topic_authorized_operations: int = wire.int32(default=-(2**31))


class DescribeTopicPartitionsResponse(wire.Message, versions="0", flexible="0+"):
    """A page of topics; `next_cursor` is null on the last page."""

    throttle_time_ms: int = wire.int32()
    topics: list[DescribeTopicPartitionsResponseTopic] = wire.array(
        DescribeTopicPartitionsResponseTopic
    )
    next_cursor: Cursor | None = wire.struct(Cursor, nullable="0+", default=None)


APIS = (
    Api(3, MetadataRequest, MetadataResponse),
    Api(75, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse),
)
