"""AlterPartitionReassignments (key 45): move partitions to other brokers (KIP-455)."""

from __future__ import annotations

from lakelog.wire.schema import Message, Struct, array, boolean, error_text, int16, int32, string


class ReassignablePartition(Struct):
    """A partition and the brokers it is to be on."""

    partition_index: int = int32()
    replicas: list[int] | None = array(int32, nullable="0+", default=None)
    """Null cancels a move that is under way."""


class ReassignableTopic(Struct):
    """Partitions of one topic."""

    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


class AlterPartitionReassignmentsRequest(Message, versions="0-1", flexible="0+"):
    """Version 1 can ask that the number of replicas stays (KIP-860)."""

    timeout_ms: int = int32(default=60_000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


class ReassignablePartitionResponse(Struct):
    """One partition."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = error_text()


class ReassignableTopicResponse(Struct):
    """One topic."""

    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


class AlterPartitionReassignmentsResponse(Message, versions="0-1", flexible="0+"):
    """What became of each partition."""

    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean("1+", default=True)
    error_code: int = int16()
    error_message: str | None = error_text()
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)
