"""CreateTopics (key 19): create topics."""

from __future__ import annotations

from lakelog.protocol.api import Api
from lakelog.wire.schema import (
    Message,
    Struct,
    array,
    boolean,
    error_text,
    int8,
    int16,
    int32,
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


API = Api(19, CreateTopicsRequest, CreateTopicsResponse)
