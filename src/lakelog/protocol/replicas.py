"""The replicas of partitions: their leaders, their brokers and their sizes on disk."""

from __future__ import annotations

from lakelog.protocol.api import OWN_TAGS, Api
from lakelog.wire.schema import (
    Message,
    Struct,
    array,
    boolean,
    error_text,
    int8,
    int16,
    int32,
    int64,
    string,
)


class TopicPartitions(Struct):
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[int] = array(int32)
    leaders: list[int] = array(int32, "2+", tag=OWN_TAGS)
    """The wanted leaders of an unclean election, one for each partition; none: any replica."""


class ElectLeadersRequest(Message, versions="0-2", flexible="2+"):
    """Requests elections. Versions: 1 can request an unclean election, 2 is flexible."""

    election_type: int = int8("1+")
    """0: preferred replica, 1: unclean."""
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable="0+")
    """Null stands for all partitions."""
    timeout_ms: int = int32(default=60_000)


class PartitionResult(Struct):
    """The result for one partition."""

    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = error_text()


class ReplicaElectionResult(Struct):
    """Results for the partitions of one topic."""

    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult)


class ElectLeadersResponse(Message, versions="0-2", flexible="2+"):
    """The result for each partition."""

    throttle_time_ms: int = int32()
    error_code: int = int16("1+")
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)


class ReassignablePartition(Struct):
    """A partition and its new replicas."""

    partition_index: int = int32()
    replicas: list[int] | None = array(int32, nullable="0+", default=None)
    """Null cancels a reassignment in progress."""


class ReassignableTopic(Struct):
    """Partitions of one topic."""

    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


class AlterPartitionReassignmentsRequest(Message, versions="0-1", flexible="0+"):
    """Reassigns partitions. Versions: 1 can forbid changes of the replication factor (KIP-860)."""

    timeout_ms: int = int32(default=60_000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


class ReassignablePartitionResponse(Struct):
    """The result for one partition."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = error_text()


class ReassignableTopicResponse(Struct):
    """Results for the partitions of one topic."""

    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


class AlterPartitionReassignmentsResponse(Message, versions="0-1", flexible="0+"):
    """The result for each partition."""

    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean("1+", default=True)
    error_code: int = int16()
    error_message: str | None = error_text()
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)


class ListPartitionReassignmentsTopics(Struct):
    """Partitions of one topic."""

    name: str = string()
    partition_indexes: list[int] = array(int32)


class ListPartitionReassignmentsRequest(Message, versions="0", flexible="0+"):
    """Requests reassignments; null topics stand for all topics."""

    timeout_ms: int = int32(default=60_000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, nullable="0+", default=None
    )


class OngoingPartitionReassignment(Struct):
    """A partition with all its replicas, the added ones and the removed ones."""

    partition_index: int = int32()
    replicas: list[int] = array(int32)
    adding_replicas: list[int] = array(int32)
    removing_replicas: list[int] = array(int32)


class OngoingTopicReassignment(Struct):
    """Reassignments in one topic."""

    name: str = string()
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


class ListPartitionReassignmentsResponse(Message, versions="0", flexible="0+"):
    """The partitions that are being reassigned."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = error_text()
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)


class DescribableLogDirTopic(Struct):
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[int] = array(int32)


class DescribeLogDirsRequest(Message, versions="1-5", flexible="2+"):
    """Requests the sizes of some partitions, or of all with null topics.

    Versions: 2 is flexible.
    """

    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, nullable="0+")


class DescribeLogDirsPartition(Struct):
    """The size of one partition in bytes, and its lag in offsets."""

    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    """The lag behind the high watermark, or behind the log that this copy will replace."""
    is_future_key: bool = boolean()
    """Whether this copy is the target of a move from another directory."""


class DescribeLogDirsTopic(Struct):
    """Partitions of one topic in this directory."""

    name: str = string()
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


class DescribeLogDirsResult(Struct):
    """One log directory; it has an error and no topics when it is offline."""

    error_code: int = int16()
    log_dir: str = string()
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    total_bytes: int = int64("4+", default=-1)
    """Of the file system, -1 when unknown."""
    usable_bytes: int = int64("4+", default=-1)
    """Of the file system, -1 when unknown."""
    is_cordoned: bool = boolean("5+")
    problem: str = string("2+", tag=OWN_TAGS)
    """Why the broker cannot write to the directory, or to the logs of some partitions in it.
    Apache Kafka does not have this field."""


class DescribeLogDirsResponse(Message, versions="1-5", flexible="2+"):
    """One entry for each log directory of this broker.

    Versions: 3 adds an error for the response, 4 the sizes of the file system, 5 whether the
    directory accepts no new partitions.
    """

    throttle_time_ms: int = int32()
    error_code: int = int16("3+")
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)


APIS = (
    Api(35, DescribeLogDirsRequest, DescribeLogDirsResponse),
    Api(43, ElectLeadersRequest, ElectLeadersResponse),
    Api(45, AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse),
    Api(46, ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse),
)
