"""The committed offsets of groups."""

from __future__ import annotations

from lakelog.protocol.api import Api
from lakelog.wire.schema import Message, Struct, array, boolean, int16, int32, int64, string, uuid


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


class OffsetDeleteRequestPartition(Struct):
    """A partition whose offset to delete."""

    partition_index: int = int32()


class OffsetDeleteRequestTopic(Struct):
    """Partitions of one topic."""

    name: str = string()
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)


class OffsetDeleteRequest(Message, versions="0"):
    """Deletes the offsets of a group in these partitions."""

    group_id: str = string()
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)


class OffsetDeleteResponsePartition(Struct):
    """The result for one partition."""

    partition_index: int = int32()
    error_code: int = int16()


class OffsetDeleteResponseTopic(Struct):
    """Partitions of one topic."""

    name: str = string()
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)


class OffsetDeleteResponse(Message, versions="0"):
    """The result for each partition; there are no topics after an error of the group."""

    error_code: int = int16()
    throttle_time_ms: int = int32()
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)


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


APIS = (
    Api(8, OffsetCommitRequest, OffsetCommitResponse),
    Api(9, OffsetFetchRequest, OffsetFetchResponse),
    Api(28, TxnOffsetCommitRequest, TxnOffsetCommitResponse),
    Api(47, OffsetDeleteRequest, OffsetDeleteResponse),
)
