"""The replicas of partitions: their leaders, their brokers and their sizes on disk."""

from __future__ import annotations

from lakelog.protocol.api import OWN_TAGS, Api
from lakelog.wire import schema as wire


class TopicPartitions(wire.Struct):
    """Partitions of one topic."""

    topic: str = wire.string()
    partitions: list[int] = wire.array(wire.int32)
    leaders: list[int] = wire.array(wire.int32, "2+", tag=OWN_TAGS)
    """The wanted leaders of an unclean election, one for each partition; none: any replica."""


class ElectLeadersRequest(wire.Message, versions="0-2", flexible="2+"):
    """Requests elections. Versions: 1 can request an unclean election, 2 is flexible."""

    election_type: int = wire.int8("1+")
    """0: preferred replica, 1: unclean."""
    topic_partitions: list[TopicPartitions] | None = wire.array(TopicPartitions, nullable="0+")
    """Null stands for all partitions."""
    timeout_ms: int = wire.int32(default=60_000)


class PartitionResult(wire.Struct):
    """The result for one partition."""

    partition_id: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.error_text()


class ReplicaElectionResult(wire.Struct):
    """Results for the partitions of one topic."""

    topic: str = wire.string()
    partition_result: list[PartitionResult] = wire.array(PartitionResult)


class ElectLeadersResponse(wire.Message, versions="0-2", flexible="2+"):
    """The result for each partition."""

    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16("1+")
    replica_election_results: list[ReplicaElectionResult] = wire.array(ReplicaElectionResult)


class ReassignablePartition(wire.Struct):
    """A partition and its new replicas."""

    partition_index: int = wire.int32()
    replicas: list[int] | None = wire.array(wire.int32, nullable="0+", default=None)
    """Null cancels a reassignment in progress."""


class ReassignableTopic(wire.Struct):
    """Partitions of one topic."""

    name: str = wire.string()
    partitions: list[ReassignablePartition] = wire.array(ReassignablePartition)


class AlterPartitionReassignmentsRequest(wire.Message, versions="0-1", flexible="0+"):
    """Reassigns partitions. Versions: 1 can forbid changes of the replication factor (KIP-860)."""

    timeout_ms: int = wire.int32(default=60_000)
    allow_replication_factor_change: bool = wire.boolean("1+", default=True)
    topics: list[ReassignableTopic] = wire.array(ReassignableTopic)


class ReassignablePartitionResponse(wire.Struct):
    """The result for one partition."""

    partition_index: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.error_text()


class ReassignableTopicResponse(wire.Struct):
    """Results for the partitions of one topic."""

    name: str = wire.string()
    partitions: list[ReassignablePartitionResponse] = wire.array(ReassignablePartitionResponse)


class AlterPartitionReassignmentsResponse(wire.Message, versions="0-1", flexible="0+"):
    """The result for each partition."""

    throttle_time_ms: int = wire.int32()
    allow_replication_factor_change: bool = wire.boolean("1+", default=True)
    error_code: int = wire.int16()
    error_message: str | None = wire.error_text()
    responses: list[ReassignableTopicResponse] = wire.array(ReassignableTopicResponse)


class ListPartitionReassignmentsTopics(wire.Struct):
    """Partitions of one topic."""

    name: str = wire.string()
    partition_indexes: list[int] = wire.array(wire.int32)


class ListPartitionReassignmentsRequest(wire.Message, versions="0", flexible="0+"):
    """Requests reassignments; null topics stand for all topics."""

    timeout_ms: int = wire.int32(default=60_000)
    topics: list[ListPartitionReassignmentsTopics] | None = wire.array(
        ListPartitionReassignmentsTopics, nullable="0+", default=None
    )


class OngoingPartitionReassignment(wire.Struct):
    """A partition with all its replicas, the added ones and the removed ones."""

    partition_index: int = wire.int32()
    replicas: list[int] = wire.array(wire.int32)
    adding_replicas: list[int] = wire.array(wire.int32)
    removing_replicas: list[int] = wire.array(wire.int32)


class OngoingTopicReassignment(wire.Struct):
    """Reassignments in one topic."""

    name: str = wire.string()
    partitions: list[OngoingPartitionReassignment] = wire.array(OngoingPartitionReassignment)


class ListPartitionReassignmentsResponse(wire.Message, versions="0", flexible="0+"):
    """The partitions that are being reassigned."""

    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.error_text()
    topics: list[OngoingTopicReassignment] = wire.array(OngoingTopicReassignment)


class DescribableLogDirTopic(wire.Struct):
    """Partitions of one topic."""

    topic: str = wire.string()
    partitions: list[int] = wire.array(wire.int32)


class DescribeLogDirsRequest(wire.Message, versions="1-5", flexible="2+"):
    """Requests the sizes of some partitions, or of all with null topics.

    Versions: 2 is flexible.
    """

    topics: list[DescribableLogDirTopic] | None = wire.array(DescribableLogDirTopic, nullable="0+")


class DescribeLogDirsPartition(wire.Struct):
    """The size of one partition in bytes, and its lag in offsets."""

    partition_index: int = wire.int32()
    partition_size: int = wire.int64()
    offset_lag: int = wire.int64()
    """The lag behind the high watermark, or behind the log that this copy will replace."""
    is_future_key: bool = wire.boolean()
    """Whether this copy is the target of a move from another directory."""


class DescribeLogDirsTopic(wire.Struct):
    """Partitions of one topic in this directory."""

    name: str = wire.string()
    partitions: list[DescribeLogDirsPartition] = wire.array(DescribeLogDirsPartition)


class DescribeLogDirsResult(wire.Struct):
    """One log directory; it has an error and no topics when it is offline."""

    error_code: int = wire.int16()
    log_dir: str = wire.string()
    topics: list[DescribeLogDirsTopic] = wire.array(DescribeLogDirsTopic)
    total_bytes: int = wire.int64("4+", default=-1)
    """Of the file system, -1 when unknown."""
    usable_bytes: int = wire.int64("4+", default=-1)
    """Of the file system, -1 when unknown."""
    is_cordoned: bool = wire.boolean("5+")
    problem: str = wire.string("2+", tag=OWN_TAGS)
    """Why the broker cannot write to the directory, or to the logs of some partitions in it.
    Apache Kafka does not have this field."""


class DescribeLogDirsResponse(wire.Message, versions="1-5", flexible="2+"):
    """One entry for each log directory of this broker.

    Versions: 3 adds an error for the response, 4 the sizes of the file system, 5 whether the
    directory accepts no new partitions.
    """

    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16("3+")
    results: list[DescribeLogDirsResult] = wire.array(DescribeLogDirsResult)


APIS = (
    Api(35, DescribeLogDirsRequest, DescribeLogDirsResponse),
    Api(43, ElectLeadersRequest, ElectLeadersResponse),
    Api(45, AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse),
    Api(46, ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse),
)
