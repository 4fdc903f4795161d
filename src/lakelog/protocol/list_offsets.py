"""ListOffsets (key 2): find offsets by timestamp or special position."""

from __future__ import annotations

from lakelog.protocol.api import Api
from lakelog.wire.schema import Message, Struct, array, int8, int16, int32, int64, string


class ListOffsetsPartition(Struct):
    """The timestamp or position to find in one partition."""

    partition_index: int = int32()
    current_leader_epoch: int = int32("4+", default=-1)
    timestamp: int = int64()
    """A time in milliseconds, for the first record at or after it, or a special position: -1 the
    end, -2 the start, -3 the record with the largest timestamp, -4 the start of the local log, -5
    the end of the tiered log, -6 the start of the part that is not yet tiered."""


class ListOffsetsTopic(Struct):
    """Partitions of one topic."""

    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


class ListOffsetsRequest(Message, versions="1-11", flexible="6+"):
    """Requests one offset of each partition.

    Versions: 2 adds isolation levels, 4 leader epochs, 6 is flexible, 7 allows timestamp -3, 8
    allows -4, 9 allows -5, 10 adds a timeout for reads of tiered storage, 11 allows -6.
    """

    replica_id: int = int32()
    """-1 for a consumer, -2 for the end of the log of any replica."""
    isolation_level: int = int8("2+")
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32("10+")


class ListOffsetsPartitionResponse(Struct):
    """The offset of one partition; offset and timestamp are -1 when there is none."""

    partition_index: int = int32()
    error_code: int = int16()
    timestamp: int = int64(default=-1)
    """The timestamp of the record; -1 for a special position."""
    offset: int = int64(default=-1)
    leader_epoch: int = int32("4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    """Results for the partitions of one topic."""

    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


class ListOffsetsResponse(Message, versions="1-11", flexible="6+"):
    """The offset of each partition."""

    throttle_time_ms: int = int32("2+")
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)


API = Api(2, ListOffsetsRequest, ListOffsetsResponse)
