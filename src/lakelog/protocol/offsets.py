"""The committed offsets of groups."""

from __future__ import annotations

from lakelog.protocol.api import Api
from lakelog.wire import schema as wire


class OffsetCommitRequestPartition(wire.Struct):
    """The next offset to consume in one partition, with metadata of the client."""

    partition_index: int = wire.int32()
    committed_offset: int = wire.int64()
    committed_leader_epoch: int = wire.int32("6+", default=-1)
    """The leader epoch of the last consumed record, -1 if unknown."""
    committed_metadata: str | None = wire.string(nullable="0+")


class OffsetCommitRequestTopic(wire.Struct):
    """Offsets of one topic."""

    name: str = wire.string("0-9")
    topic_id: bytes = wire.uuid("10+")
    partitions: list[OffsetCommitRequestPartition] = wire.array(OffsetCommitRequestPartition)


class OffsetCommitRequest(wire.Message, versions="2-10", flexible="8+"):
    """Stores offsets of a group, for a member, or for a client outside the group.

    Versions: 2 to 4 have a retention time, 6 adds leader epochs, 7 static members, 8 is flexible, 9
    supports consumer groups (KIP-848), 10 identifies topics by id only.
    """

    group_id: str = wire.string()
    generation_id_or_member_epoch: int = wire.int32(default=-1)
    """-1 for a client outside the group."""
    member_id: str = wire.string()
    group_instance_id: str | None = wire.string("7+", nullable="0+", default=None)
    retention_time_ms: int = wire.int64("2-4", default=-1)
    """-1 for the broker's setting."""
    topics: list[OffsetCommitRequestTopic] = wire.array(OffsetCommitRequestTopic)


class OffsetCommitResponsePartition(wire.Struct):
    """The result for one partition."""

    partition_index: int = wire.int32()
    error_code: int = wire.int16()


class OffsetCommitResponseTopic(wire.Struct):
    """Results for the partitions of one topic."""

    name: str = wire.string("0-9")
    topic_id: bytes = wire.uuid("10+")
    partitions: list[OffsetCommitResponsePartition] = wire.array(OffsetCommitResponsePartition)


class OffsetCommitResponse(wire.Message, versions="2-10", flexible="8+"):
    """An error code per partition."""

    throttle_time_ms: int = wire.int32("3+")
    topics: list[OffsetCommitResponseTopic] = wire.array(OffsetCommitResponseTopic)


class OffsetFetchRequestTopic(wire.Struct):
    """Partitions of one topic, up to version 7."""

    name: str = wire.string()
    partition_indexes: list[int] = wire.array(wire.int32)


class OffsetFetchRequestTopics(wire.Struct):
    """Partitions of one topic, from version 8 on."""

    name: str = wire.string("8-9")
    topic_id: bytes = wire.uuid("10+")
    partition_indexes: list[int] = wire.array(wire.int32)


class OffsetFetchRequestGroup(wire.Struct):
    """One group and its requested partitions."""

    group_id: str = wire.string()
    member_id: str | None = wire.string("9+", nullable="0+", default=None)
    member_epoch: int = wire.int32("9+", default=-1)
    topics: list[OffsetFetchRequestTopics] | None = wire.array(
        OffsetFetchRequestTopics, nullable="0+"
    )


class OffsetFetchRequest(wire.Message, versions="1-10", flexible="6+"):
    """Requests the committed offsets of one group, or from version 8 on of several.

    From version 2 on, null topics stand for all offsets of the group.

    Versions: 6 is flexible, 7 can require offsets without pending transactions, 8 allows several
    groups (KIP-709), 9 adds the member and its epoch (KIP-848), 10 identifies topics by id.
    """

    group_id: str = wire.string("0-7")
    topics: list[OffsetFetchRequestTopic] | None = wire.array(
        OffsetFetchRequestTopic, "0-7", nullable="2-7"
    )
    groups: list[OffsetFetchRequestGroup] = wire.array(OffsetFetchRequestGroup, "8+")
    require_stable: bool = wire.boolean("7+")
    """Whether to return UNSTABLE_OFFSET_COMMIT instead of an offset with a pending transaction."""


class OffsetFetchResponsePartition(wire.Struct):
    """The offset of one partition, up to version 7."""

    partition_index: int = wire.int32()
    committed_offset: int = wire.int64()
    committed_leader_epoch: int = wire.int32("5-7", default=-1)
    metadata: str | None = wire.string(nullable="0+")
    error_code: int = wire.int16()


class OffsetFetchResponseTopic(wire.Struct):
    """Offsets of one topic, up to version 7."""

    name: str = wire.string()
    partitions: list[OffsetFetchResponsePartition] = wire.array(OffsetFetchResponsePartition)


class OffsetFetchResponsePartitions(wire.Struct):
    """The offset of one partition, from version 8 on."""

    partition_index: int = wire.int32()
    committed_offset: int = wire.int64()
    committed_leader_epoch: int = wire.int32(default=-1)
    metadata: str | None = wire.string(nullable="0+")
    error_code: int = wire.int16()


class OffsetFetchResponseTopics(wire.Struct):
    """Offsets of one topic, from version 8 on."""

    name: str = wire.string("8-9")
    topic_id: bytes = wire.uuid("10+")
    partitions: list[OffsetFetchResponsePartitions] = wire.array(OffsetFetchResponsePartitions)


class OffsetFetchResponseGroup(wire.Struct):
    """Offsets of one group, or an error."""

    group_id: str = wire.string()
    topics: list[OffsetFetchResponseTopics] = wire.array(OffsetFetchResponseTopics)
    error_code: int = wire.int16()


class OffsetFetchResponse(wire.Message, versions="1-10", flexible="6+"):
    """Committed offsets; a partition without one has offset -1 and no error.

    Versions: 2 adds an error for the group, 5 leader epochs, 8 one entry for each group.
    """

    throttle_time_ms: int = wire.int32("3+")
    topics: list[OffsetFetchResponseTopic] = wire.array(OffsetFetchResponseTopic, "0-7")
    error_code: int = wire.int16("2-7")
    groups: list[OffsetFetchResponseGroup] = wire.array(OffsetFetchResponseGroup, "8+")


class OffsetDeleteRequestPartition(wire.Struct):
    """A partition whose offset to delete."""

    partition_index: int = wire.int32()


class OffsetDeleteRequestTopic(wire.Struct):
    """Partitions of one topic."""

    name: str = wire.string()
    partitions: list[OffsetDeleteRequestPartition] = wire.array(OffsetDeleteRequestPartition)


class OffsetDeleteRequest(wire.Message, versions="0"):
    """Deletes the offsets of a group in these partitions."""

    group_id: str = wire.string()
    topics: list[OffsetDeleteRequestTopic] = wire.array(OffsetDeleteRequestTopic)


class OffsetDeleteResponsePartition(wire.Struct):
    """The result for one partition."""

    partition_index: int = wire.int32()
    error_code: int = wire.int16()


class OffsetDeleteResponseTopic(wire.Struct):
    """Partitions of one topic."""

    name: str = wire.string()
    partitions: list[OffsetDeleteResponsePartition] = wire.array(OffsetDeleteResponsePartition)


class OffsetDeleteResponse(wire.Message, versions="0"):
    """The result for each partition; there are no topics after an error of the group."""

    error_code: int = wire.int16()
    throttle_time_ms: int = wire.int32()
    topics: list[OffsetDeleteResponseTopic] = wire.array(OffsetDeleteResponseTopic)


class TxnOffsetCommitRequestPartition(wire.Struct):
    """The next offset to consume in one partition, with metadata of the client."""

    partition_index: int = wire.int32()
    committed_offset: int = wire.int64()
    committed_leader_epoch: int = wire.int32("2+", default=-1)
    """The leader epoch of the last consumed record, -1 if unknown."""
    committed_metadata: str | None = wire.string(nullable="0+")


class TxnOffsetCommitRequestTopic(wire.Struct):
    """Offsets of one topic."""

    name: str = wire.string("0-5")
    topic_id: bytes = wire.uuid("6+")
    partitions: list[TxnOffsetCommitRequestPartition] = wire.array(TxnOffsetCommitRequestPartition)


class TxnOffsetCommitRequest(wire.Message, versions="0-6", flexible="3+"):
    """Stores offsets that become valid when the transaction is committed.

    Versions: 2 adds leader epochs, 3 is flexible and adds the member for fencing (KIP-447), 4
    adds TRANSACTION_ABORTABLE, 5 adds the group to the transaction implicitly (KIP-890), 6
    identifies topics by id only (KIP-1319).
    """

    transactional_id: str = wire.string()
    group_id: str = wire.string()
    producer_id: int = wire.int64()
    producer_epoch: int = wire.int16()
    generation_id_or_member_epoch: int = wire.int32("3+", default=-1)
    member_id: str = wire.string("3+")
    group_instance_id: str | None = wire.string("3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = wire.array(TxnOffsetCommitRequestTopic)


class TxnOffsetCommitResponsePartition(wire.Struct):
    """The result for one partition."""

    partition_index: int = wire.int32()
    error_code: int = wire.int16()


class TxnOffsetCommitResponseTopic(wire.Struct):
    """Results for the partitions of one topic."""

    name: str = wire.string("0-5")
    topic_id: bytes = wire.uuid("6+")
    partitions: list[TxnOffsetCommitResponsePartition] = wire.array(
        TxnOffsetCommitResponsePartition
    )


class TxnOffsetCommitResponse(wire.Message, versions="0-6", flexible="3+"):
    """An error code per partition."""

    throttle_time_ms: int = wire.int32()
    topics: list[TxnOffsetCommitResponseTopic] = wire.array(TxnOffsetCommitResponseTopic)


APIS = (
    Api(8, OffsetCommitRequest, OffsetCommitResponse),
    Api(9, OffsetFetchRequest, OffsetFetchResponse),
    Api(28, TxnOffsetCommitRequest, TxnOffsetCommitResponse),
    Api(47, OffsetDeleteRequest, OffsetDeleteResponse),
)
