"""AlterPartitionReassignments (key 45): move partitions to other brokers (KIP-455)."""

from __future__ import annotations

from lakelog.protocol.api import Api
from lakelog.wire.schema import Message, Struct, array, boolean, error_text, int16, int32, string


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


API = Api(45, AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse)
