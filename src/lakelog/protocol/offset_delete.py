"""OffsetDelete (key 47): forgets committed offsets of topics a group does not read (KIP-496)."""

from __future__ import annotations

from lakelog.wire.schema import Message, Struct, array, int16, int32, string


class OffsetDeleteRequestPartition(Struct):
    """A partition to forget."""

    partition_index: int = int32()


class OffsetDeleteRequestTopic(Struct):
    """Partitions of one topic."""

    name: str = string()
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)


class OffsetDeleteRequest(Message, versions="0"):
    """Asks that a group forget its offsets in these partitions."""

    group_id: str = string()
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)


class OffsetDeleteResponsePartition(Struct):
    """What became of one."""

    partition_index: int = int32()
    error_code: int = int16()


class OffsetDeleteResponseTopic(Struct):
    """Partitions of one topic."""

    name: str = string()
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)


class OffsetDeleteResponse(Message, versions="0"):
    """With an error for the whole group there are no topics."""

    error_code: int = int16()
    throttle_time_ms: int = int32()
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)
