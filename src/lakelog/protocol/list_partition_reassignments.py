"""ListPartitionReassignments (key 46): the reassignments in progress (KIP-455)."""

from __future__ import annotations

from lakelog.protocol.api import Api
from lakelog.wire.schema import Message, Struct, array, error_text, int16, int32, string


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


API = Api(46, ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse)
