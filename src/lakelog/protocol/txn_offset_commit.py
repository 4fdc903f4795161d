"""TxnOffsetCommit (key 28): commit offsets of a group with a transaction."""

from __future__ import annotations

from lakelog.protocol.api import Api
from lakelog.wire.schema import Message, Struct, array, int16, int32, int64, string, uuid


class TxnOffsetCommitRequestPartition(Struct):
    """The next offset to consume in one partition, with metadata of the client."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("2+", default=-1)
    """The leader epoch of the last consumed record, -1 if unknown."""
    committed_metadata: str | None = string(nullable="0+")


class TxnOffsetCommitRequestTopic(Struct):
    """Offsets of one topic."""

    name: str = string("0-5")
    topic_id: bytes = uuid("6+")
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition)


class TxnOffsetCommitRequest(Message, versions="0-6", flexible="3+"):
    """Stores offsets that become valid when the transaction is committed.

    Versions: 2 adds leader epochs, 3 is flexible and adds the member for fencing (KIP-447), 4
    adds TRANSACTION_ABORTABLE, 5 adds the group to the transaction implicitly (KIP-890), 6
    identifies topics by id only (KIP-1319).
    """

    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id_or_member_epoch: int = int32("3+", default=-1)
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)


class TxnOffsetCommitResponsePartition(Struct):
    """The result for one partition."""

    partition_index: int = int32()
    error_code: int = int16()


class TxnOffsetCommitResponseTopic(Struct):
    """Results for the partitions of one topic."""

    name: str = string("0-5")
    topic_id: bytes = uuid("6+")
    partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition)


class TxnOffsetCommitResponse(Message, versions="0-6", flexible="3+"):
    """An error code per partition."""

    throttle_time_ms: int = int32()
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic)


API = Api(28, TxnOffsetCommitRequest, TxnOffsetCommitResponse)
