"""OffsetForLeaderEpoch (key 23): the end offsets of leader epochs (KIP-101, KIP-320)."""

from __future__ import annotations

from lakelog.protocol.api import Api
from lakelog.wire.schema import Message, Struct, array, int16, int32, int64, string


class OffsetForLeaderPartition(Struct):
    """The requested epoch, and the current epoch as known to the client (-1: unknown)."""

    partition: int = int32()
    current_leader_epoch: int = int32("2+", default=-1)
    leader_epoch: int = int32()


class OffsetForLeaderTopic(Struct):
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


class OffsetForLeaderEpochRequest(Message, versions="2-4", flexible="4+"):
    """Requests the end offsets of epochs.

    Versions: 3 adds the replica id, 4 is flexible.
    """

    replica_id: int = int32("3+", default=-2)
    """-1 for a consumer, -2 for a debugging consumer."""
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


class EpochEndOffset(Struct):
    """The largest epoch up to the requested one, and its end offset; -1 when unknown."""

    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32("1+", default=-1)
    end_offset: int = int64(default=-1)


class OffsetForLeaderTopicResult(Struct):
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[EpochEndOffset] = array(EpochEndOffset)


class OffsetForLeaderEpochResponse(Message, versions="2-4", flexible="4+"):
    """The end offset of each epoch."""

    throttle_time_ms: int = int32("2+")
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)


API = Api(23, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse)
