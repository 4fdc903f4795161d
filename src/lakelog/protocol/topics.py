"""Creation, growth and deletion of topics, and of the records at their start."""

from __future__ import annotations

from lakelog.protocol.api import OWN_TAGS, Api
from lakelog.wire import schema as wire


class CreatableReplicaAssignment(wire.Struct):
    """The brokers of one partition; the first is the preferred leader."""

    partition_index: int = wire.int32()
    broker_ids: list[int] = wire.array(wire.int32)


class CreatableTopicConfig(wire.Struct):
    """A configuration of the new topic."""

    name: str = wire.string()
    value: str | None = wire.string(nullable="0+")


class CreatableTopic(wire.Struct):
    """A topic with counts, or with assignments and both counts -1."""

    name: str = wire.string()
    num_partitions: int = wire.int32()
    replication_factor: int = wire.int16()
    assignments: list[CreatableReplicaAssignment] = wire.array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = wire.array(CreatableTopicConfig)


class CreateTopicsRequest(wire.Message, versions="2-7", flexible="5+"):
    """Creates topics, each of which may fail alone.

    Versions: 4 allows -1 for the broker's default counts, 5 is flexible, 7 returns the topic's id.
    """

    topics: list[CreatableTopic] = wire.array(CreatableTopic)
    timeout_ms: int = wire.int32(default=60000)
    validate_only: bool = wire.boolean()
    """Whether to validate the request only, without creating topics."""


class CreatableTopicConfigs(wire.Struct):
    """A setting in force for the new topic, and its source."""

    name: str = wire.string()
    value: str | None = wire.string(nullable="0+")
    read_only: bool = wire.boolean()
    config_source: int = wire.int8(default=-1)
    is_sensitive: bool = wire.boolean()


class CreatableTopicResult(wire.Struct):
    """The result for one topic; after an error, counts are -1 and configurations null."""

    name: str = wire.string()
    topic_id: bytes = wire.uuid("7+")
    error_code: int = wire.int16()
    error_message: str | None = wire.error_text()
    topic_config_error_code: int = wire.int16("5+", tag=0)
    """The error that leaves the configurations null although the topic was created."""
    num_partitions: int = wire.int32("5+", default=-1)
    replication_factor: int = wire.int16("5+", default=-1)
    configs: list[CreatableTopicConfigs] | None = wire.array(
        CreatableTopicConfigs, "5+", nullable="0+"
    )


class CreateTopicsResponse(wire.Message, versions="2-7", flexible="5+"):
    """The result for each topic.

    Versions: 5 adds counts and configurations (KIP-525), 7 the topic's id.
    """

    throttle_time_ms: int = wire.int32()
    topics: list[CreatableTopicResult] = wire.array(CreatableTopicResult)


class CreatePartitionsAssignment(wire.Struct):
    """The brokers of one new partition."""

    broker_ids: list[int] = wire.array(wire.int32)


class CreatePartitionsTopic(wire.Struct):
    """The new total number of partitions, and optionally the replicas of the added ones."""

    name: str = wire.string()
    count: int = wire.int32()
    assignments: list[CreatePartitionsAssignment] | None = wire.array(
        CreatePartitionsAssignment, nullable="0+"
    )
    """Null lets the broker choose the replicas."""


class CreatePartitionsRequest(wire.Message, versions="0-3", flexible="2+"):
    """Increases the number of partitions, which can never decrease.

    Versions: 2 is flexible, 3 can be rejected by a quota.
    """

    topics: list[CreatePartitionsTopic] = wire.array(CreatePartitionsTopic)
    timeout_ms: int = wire.int32()
    validate_only: bool = wire.boolean()


class CreatePartitionsTopicResult(wire.Struct):
    """The result for one topic."""

    name: str = wire.string()
    error_code: int = wire.int16()
    error_message: str | None = wire.error_text(default=None)


class CreatePartitionsResponse(wire.Message, versions="0-3", flexible="2+"):
    """The result for each topic."""

    throttle_time_ms: int = wire.int32()
    results: list[CreatePartitionsTopicResult] = wire.array(CreatePartitionsTopicResult)


class DeleteTopicState(wire.Struct):
    """A topic by name, or by id with a null name."""

    name: str | None = wire.string(nullable="0+", default=None)
    topic_id: bytes = wire.uuid()


class DeleteTopicsRequest(wire.Message, versions="1-6", flexible="4+"):
    """Deletes topics with their records and their groups' offsets.

    Versions: 4 is flexible, 6 identifies topics by name or id.
    """

    topics: list[DeleteTopicState] = wire.array(DeleteTopicState, "6+")
    topic_names: list[str] = wire.array(wire.string, "0-5")
    timeout_ms: int = wire.int32()


class DeletableTopicResult(wire.Struct):
    """The result for one topic; its name is null if the requested id is unknown."""

    name: str | None = wire.string(nullable="6+")
    topic_id: bytes = wire.uuid("6+")
    error_code: int = wire.int16()
    error_message: str | None = wire.error_text("5+", default=None)


class DeleteTopicsResponse(wire.Message, versions="1-6", flexible="4+"):
    """The result for each topic. Versions: 5 adds a message, 6 the id."""

    throttle_time_ms: int = wire.int32()
    responses: list[DeletableTopicResult] = wire.array(DeletableTopicResult)


class DeleteRecordsPartition(wire.Struct):
    """The new log start offset of a partition; -1 is the high watermark."""

    partition_index: int = wire.int32()
    offset: int = wire.int64()


class DeleteRecordsTopic(wire.Struct):
    """Partitions of one topic."""

    name: str = wire.string()
    partitions: list[DeleteRecordsPartition] = wire.array(DeleteRecordsPartition)


class DeleteRecordsRequest(wire.Message, versions="0-2", flexible="2+"):
    """Deletes all records before an offset.

    Versions: 2 is flexible.
    """

    topics: list[DeleteRecordsTopic] = wire.array(DeleteRecordsTopic)
    timeout_ms: int = wire.int32()
    force: bool = wire.boolean("2+", tag=OWN_TAGS, default=False)
    """Whether to delete records that the topic's table does not have yet; lakelog's own field."""


class DeleteRecordsPartitionResult(wire.Struct):
    """The log start offset of a partition, or -1 with an error."""

    partition_index: int = wire.int32()
    low_watermark: int = wire.int64()
    error_code: int = wire.int16()


class DeleteRecordsTopicResult(wire.Struct):
    """Partitions of one topic."""

    name: str = wire.string()
    partitions: list[DeleteRecordsPartitionResult] = wire.array(DeleteRecordsPartitionResult)


class DeleteRecordsResponse(wire.Message, versions="0-2", flexible="2+"):
    """The result for each partition."""

    throttle_time_ms: int = wire.int32()
    topics: list[DeleteRecordsTopicResult] = wire.array(DeleteRecordsTopicResult)


APIS = (
    Api(19, CreateTopicsRequest, CreateTopicsResponse),
    Api(20, DeleteTopicsRequest, DeleteTopicsResponse),
    Api(21, DeleteRecordsRequest, DeleteRecordsResponse),
    Api(37, CreatePartitionsRequest, CreatePartitionsResponse),
)
