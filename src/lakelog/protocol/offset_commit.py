"""OffsetCommit (key 8): store the consumed offsets of a group."""

from __future__ import annotations

from lakelog.protocol.api import Api
from lakelog.wire.schema import Message, Struct, array, int16, int32, int64, string, uuid


class OffsetCommitRequestPartition(Struct):
    """The next offset to consume in one partition, with metadata of the client."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("6+", default=-1)
    """The leader epoch of the last consumed record, -1 if unknown."""
    committed_metadata: str | None = string(nullable="0+")


class OffsetCommitRequestTopic(Struct):
    """Offsets of one topic."""

    name: str = string("0-9")
    topic_id: bytes = uuid("10+")
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


class OffsetCommitRequest(Message, versions="2-10", flexible="8+"):
    """Stores offsets of a group, for a member, or for a client outside the group.

    Versions: 2 to 4 have a retention time, 6 adds leader epochs, 7 static members, 8 is flexible, 9
    supports consumer groups (KIP-848), 10 identifies topics by id only.
    """

    group_id: str = string()
    generation_id_or_member_epoch: int = int32(default=-1)
    """-1 for a client outside the group."""
    member_id: str = string()
    group_instance_id: str | None = string("7+", nullable="0+", default=None)
    retention_time_ms: int = int64("2-4", default=-1)
    """-1 for the broker's setting."""
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


class OffsetCommitResponsePartition(Struct):
    """The result for one partition."""

    partition_index: int = int32()
    error_code: int = int16()


class OffsetCommitResponseTopic(Struct):
    """Results for the partitions of one topic."""

    name: str = string("0-9")
    topic_id: bytes = uuid("10+")
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


class OffsetCommitResponse(Message, versions="2-10", flexible="8+"):
    """An error code per partition."""

    throttle_time_ms: int = int32("3+")
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)


API = Api(8, OffsetCommitRequest, OffsetCommitResponse)
