"""Creation, growth and deletion of topics, and of the records at their start."""

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
    uuid,
)


class CreatableReplicaAssignment(Struct):
    """The brokers of one partition; the first is the preferred leader."""

    partition_index: int = int32()
    broker_ids: list[int] = array(int32)


class CreatableTopicConfig(Struct):
    """A configuration of the new topic."""

    name: str = string()
    value: str | None = string(nullable="0+")


class CreatableTopic(Struct):
    """A topic with counts, or with assignments and both counts -1."""

    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


class CreateTopicsRequest(Message, versions="2-7", flexible="5+"):
    """Creates topics, each of which may fail alone.

    Versions: 4 allows -1 for the broker's default counts, 5 is flexible, 7 returns the topic's id.
    """

    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean()
    """Whether to validate the request only, without creating topics."""


class CreatableTopicConfigs(Struct):
    """A setting in force for the new topic, and its source."""

    name: str = string()
    value: str | None = string(nullable="0+")
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()


class CreatableTopicResult(Struct):
    """The result for one topic; after an error, counts are -1 and configurations null."""

    name: str = string()
    topic_id: bytes = uuid("7+")
    error_code: int = int16()
    error_message: str | None = error_text()
    topic_config_error_code: int = int16("5+", tag=0)
    """The error that leaves the configurations null although the topic was created."""
    num_partitions: int = int32("5+", default=-1)
    replication_factor: int = int16("5+", default=-1)
    configs: list[CreatableTopicConfigs] | None = array(CreatableTopicConfigs, "5+", nullable="0+")


class CreateTopicsResponse(Message, versions="2-7", flexible="5+"):
    """The result for each topic.

    Versions: 5 adds counts and configurations (KIP-525), 7 the topic's id.
    """

    throttle_time_ms: int = int32()
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)


class CreatePartitionsAssignment(Struct):
    """The brokers of one new partition."""

    broker_ids: list[int] = array(int32)


class CreatePartitionsTopic(Struct):
    """The new total number of partitions, and optionally the replicas of the added ones."""

    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = array(
        CreatePartitionsAssignment, nullable="0+"
    )
    """Null lets the broker choose the replicas."""


class CreatePartitionsRequest(Message, versions="0-3", flexible="2+"):
    """Increases the number of partitions, which can never decrease.

    Versions: 2 is flexible, 3 can be rejected by a quota.
    """

    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


class CreatePartitionsTopicResult(Struct):
    """The result for one topic."""

    name: str = string()
    error_code: int = int16()
    error_message: str | None = error_text(default=None)


class CreatePartitionsResponse(Message, versions="0-3", flexible="2+"):
    """The result for each topic."""

    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)


class DeleteTopicState(Struct):
    """A topic by name, or by id with a null name."""

    name: str | None = string(nullable="0+", default=None)
    topic_id: bytes = uuid()


class DeleteTopicsRequest(Message, versions="1-6", flexible="4+"):
    """Deletes topics with their records and their groups' offsets.

    Versions: 4 is flexible, 6 identifies topics by name or id.
    """

    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")
    topic_names: list[str] = array(string, "0-5")
    timeout_ms: int = int32()


class DeletableTopicResult(Struct):
    """The result for one topic; its name is null if the requested id is unknown."""

    name: str | None = string(nullable="6+")
    topic_id: bytes = uuid("6+")
    error_code: int = int16()
    error_message: str | None = error_text("5+", default=None)


class DeleteTopicsResponse(Message, versions="1-6", flexible="4+"):
    """The result for each topic. Versions: 5 adds a message, 6 the id."""

    throttle_time_ms: int = int32()
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)


class DeleteRecordsPartition(Struct):
    """The new log start offset of a partition; -1 is the high watermark."""

    partition_index: int = int32()
    offset: int = int64()


class DeleteRecordsTopic(Struct):
    """Partitions of one topic."""

    name: str = string()
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition)


class DeleteRecordsRequest(Message, versions="0-2", flexible="2+"):
    """Deletes all records before an offset.

    Versions: 2 is flexible.
    """

    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    timeout_ms: int = int32()
    force: bool = boolean("2+", tag=OWN_TAGS, default=False)
    """Whether to delete records that the topic's table does not have yet; lakelog's own field."""


class DeleteRecordsPartitionResult(Struct):
    """The log start offset of a partition, or -1 with an error."""

    partition_index: int = int32()
    low_watermark: int = int64()
    error_code: int = int16()


class DeleteRecordsTopicResult(Struct):
    """Partitions of one topic."""

    name: str = string()
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult)


class DeleteRecordsResponse(Message, versions="0-2", flexible="2+"):
    """The result for each partition."""

    throttle_time_ms: int = int32()
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)


APIS = (
    Api(19, CreateTopicsRequest, CreateTopicsResponse),
    Api(20, DeleteTopicsRequest, DeleteTopicsResponse),
    Api(21, DeleteRecordsRequest, DeleteRecordsResponse),
    Api(37, CreatePartitionsRequest, CreatePartitionsResponse),
)
