"""OffsetFetch (key 9): the committed offsets of groups."""

from __future__ import annotations

from lakelog.protocol.api import Api
from lakelog.wire.schema import Message, Struct, array, boolean, int16, int32, int64, string, uuid


class OffsetFetchRequestTopic(Struct):
    """Partitions of one topic, up to version 7."""

    name: str = string()
    partition_indexes: list[int] = array(int32)


class OffsetFetchRequestTopics(Struct):
    """Partitions of one topic, from version 8 on."""

    name: str = string("8-9")
    topic_id: bytes = uuid("10+")
    partition_indexes: list[int] = array(int32)


class OffsetFetchRequestGroup(Struct):
    """One group and its requested partitions."""

    group_id: str = string()
    member_id: str | None = string("9+", nullable="0+", default=None)
    member_epoch: int = int32("9+", default=-1)
    topics: list[OffsetFetchRequestTopics] | None = array(OffsetFetchRequestTopics, nullable="0+")


class OffsetFetchRequest(Message, versions="1-10", flexible="6+"):
    """Requests the committed offsets of one group, or from version 8 on of several.

    From version 2 on, null topics stand for all offsets of the group.

    Versions: 6 is flexible, 7 can require offsets without pending transactions, 8 allows several
    groups (KIP-709), 9 adds the member and its epoch (KIP-848), 10 identifies topics by id.
    """

    group_id: str = string("0-7")
    topics: list[OffsetFetchRequestTopic] | None = array(
        OffsetFetchRequestTopic, "0-7", nullable="2-7"
    )
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, "8+")
    require_stable: bool = boolean("7+")
    """Whether to return UNSTABLE_OFFSET_COMMIT instead of an offset with a pending transaction."""


class OffsetFetchResponsePartition(Struct):
    """The offset of one partition, up to version 7."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("5-7", default=-1)
    metadata: str | None = string(nullable="0+")
    error_code: int = int16()


class OffsetFetchResponseTopic(Struct):
    """Offsets of one topic, up to version 7."""

    name: str = string()
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition)


class OffsetFetchResponsePartitions(Struct):
    """The offset of one partition, from version 8 on."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(default=-1)
    metadata: str | None = string(nullable="0+")
    error_code: int = int16()


class OffsetFetchResponseTopics(Struct):
    """Offsets of one topic, from version 8 on."""

    name: str = string("8-9")
    topic_id: bytes = uuid("10+")
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions)


class OffsetFetchResponseGroup(Struct):
    """Offsets of one group, or an error."""

    group_id: str = string()
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics)
    error_code: int = int16()


class OffsetFetchResponse(Message, versions="1-10", flexible="6+"):
    """Committed offsets; a partition without one has offset -1 and no error.

    Versions: 2 adds an error for the group, 5 leader epochs, 8 one entry for each group.
    """

    throttle_time_ms: int = int32("3+")
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, "0-7")
    error_code: int = int16("2-7")
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, "8+")


API = Api(9, OffsetFetchRequest, OffsetFetchResponse)
