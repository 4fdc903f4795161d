"""Reading record batches, and the offsets at which readers begin or diverge."""

from __future__ import annotations

from typing import Any

from lakelog.protocol.api import Api
from lakelog.protocol.metadata import LeaderIdAndEpoch, NodeEndpoint
from lakelog.wire import schema as wire


class ReplicaState(wire.Struct):
    """Identity of a follower: node id and the epoch of its registration."""

    replica_id: int = wire.int32(default=-1)
    replica_epoch: int = wire.int64(default=-1)


class FetchPartition(wire.Struct):
    """The offset to fetch from in one partition, and the maximum bytes."""

    partition: int = wire.int32()
    current_leader_epoch: int = wire.int32("9+", default=-1)
    """-1 skips the check."""
    fetch_offset: int = wire.int64()
    last_fetched_epoch: int = wire.int32("12+", default=-1)
    """-1 skips the check for divergence."""
    log_start_offset: int = wire.int64("5+", default=-1)
    """The follower's log start offset; -1 for a consumer."""
    partition_max_bytes: int = wire.int32()
    replica_directory_id: bytes = wire.uuid("17+", tag=0)
    high_watermark: int = wire.int64("18+", tag=1, default=2**63 - 1)


class FetchTopic(wire.Struct):
    """Partitions of one topic."""

    topic: str = wire.string("0-12")
    topic_id: bytes = wire.uuid("13+")
    partitions: list[FetchPartition] = wire.array(FetchPartition)


class ForgottenTopic(wire.Struct):
    """Partitions to drop from the session."""

    topic: str = wire.string("7-12")
    topic_id: bytes = wire.uuid("13+")
    partitions: list[int] = wire.array(wire.int32)


class FetchRequest(wire.Message, versions="4-18", flexible="12+"):
    """Requests the batches at and after given offsets; waits up to `max_wait_ms` for `min_bytes`.

    In a fetch session (KIP-227) `topics` has new and changed partitions only, and
    `forgotten_topics_data` the removed ones. Session (0, -1) means no session.

    Versions: 4 adds isolation levels, 7 sessions, 9 leader epochs that fence old clients, 10 allows
    zstd, 11 adds the rack to fetch from a close replica, 12 is flexible and detects diverged logs,
    13 identifies topics by id only, 15 moves the follower's identity to `replica_state`, 17 adds
    the follower's directory and 18 its known high watermark.
    """

    cluster_id: str | None = wire.string("12+", nullable="0+", tag=0, default=None)
    """Checked if not null; sent by KRaft replicas only."""
    replica_id: int = wire.int32("0-14", default=-1)
    """The follower's node id, -1 for a consumer."""
    replica_state: ReplicaState = wire.struct(ReplicaState, "15+", tag=1)
    max_wait_ms: int = wire.int32()
    min_bytes: int = wire.int32()
    max_bytes: int = wire.int32(default=2**31 - 1)
    isolation_level: int = wire.int8()
    """0: read up to the high watermark, 1: up to the last stable offset."""
    session_id: int = wire.int32("7+")
    session_epoch: int = wire.int32("7+", default=-1)
    """0: open a session, -1: close it or use none, else the number of the request."""
    topics: list[FetchTopic] = wire.array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = wire.array(ForgottenTopic, "7+")
    rack_id: str = wire.string("11+")


class DivergingEpoch(wire.Struct):
    """The largest epoch at which the follower's log can agree, and its end offset; -1 if none."""

    epoch: int = wire.int32(default=-1)
    end_offset: int = wire.int64(default=-1)


class SnapshotId(wire.Struct):
    """The snapshot to load instead; only metadata partitions of KRaft have them."""

    end_offset: int = wire.int64(default=-1)
    epoch: int = wire.int32(default=-1)


class AbortedTransaction(wire.Struct):
    """A producer whose records from `first_offset` on must be skipped."""

    producer_id: int = wire.int64()
    first_offset: int = wire.int64()


class PartitionData(wire.Struct):
    """Data of one partition. `records` can be a range of a file; null means empty."""

    partition_index: int = wire.int32()
    error_code: int = wire.int16()
    high_watermark: int = wire.int64()
    last_stable_offset: int = wire.int64(default=-1)
    """The last stable offset, below which no transaction is open; -1 when unknown."""
    log_start_offset: int = wire.int64("5+", default=-1)
    diverging_epoch: DivergingEpoch = wire.struct(DivergingEpoch, "12+", tag=0)
    current_leader: LeaderIdAndEpoch = wire.struct(LeaderIdAndEpoch, "12+", tag=1)
    snapshot_id: SnapshotId = wire.struct(SnapshotId, "12+", tag=2)
    aborted_transactions: list[AbortedTransaction] | None = wire.array(
        AbortedTransaction, nullable="0+"
    )
    """Null unless the isolation level is 1."""
    preferred_read_replica: int = wire.int32("11+", default=-1)
    """The replica from which to fetch instead; -1 for the leader."""
    records: Any = wire.records(nullable="0+")


class FetchableTopicResponse(wire.Struct):
    """Data of one topic."""

    topic: str = wire.string("0-12")
    topic_id: bytes = wire.uuid("13+")
    partitions: list[PartitionData] = wire.array(PartitionData)


class FetchResponse(wire.Message, versions="4-18", flexible="12+"):
    """Record batches as they are stored.

    The first batch may begin before the requested offset. The first partition with data returns at
    least one batch, whatever its size.

    Versions: 4 adds aborted transactions, 5 the log start offset, 7 sessions and an error for the
    whole response, 11 the preferred replica, 12 the diverging epoch and the current leader, 13
    topic ids, 16 the addresses of new leaders (KIP-951).
    """

    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16("7+")
    session_id: int = wire.int32("7+")
    responses: list[FetchableTopicResponse] = wire.array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = wire.array(NodeEndpoint, "16+", tag=0)


class ListOffsetsPartition(wire.Struct):
    """The timestamp or position to find in one partition."""

    partition_index: int = wire.int32()
    current_leader_epoch: int = wire.int32("4+", default=-1)
    timestamp: int = wire.int64()
    """A time in milliseconds, for the first record at or after it, or a special position: -1 the
    end, -2 the start, -3 the record with the largest timestamp, -4 the start of the local log, -5
    the end of the tiered log, -6 the start of the part that is not yet tiered."""


class ListOffsetsTopic(wire.Struct):
    """Partitions of one topic."""

    name: str = wire.string()
    partitions: list[ListOffsetsPartition] = wire.array(ListOffsetsPartition)


class ListOffsetsRequest(wire.Message, versions="1-11", flexible="6+"):
    """Requests one offset of each partition.

    Versions: 2 adds isolation levels, 4 leader epochs, 6 is flexible, 7 allows timestamp -3, 8
    allows -4, 9 allows -5, 10 adds a timeout for reads of tiered storage, 11 allows -6.
    """

    replica_id: int = wire.int32()
    """-1 for a consumer, -2 for the end of the log of any replica."""
    isolation_level: int = wire.int8("2+")
    topics: list[ListOffsetsTopic] = wire.array(ListOffsetsTopic)
    timeout_ms: int = wire.int32("10+")


class ListOffsetsPartitionResponse(wire.Struct):
    """The offset of one partition; offset and timestamp are -1 when there is none."""

    partition_index: int = wire.int32()
    error_code: int = wire.int16()
    timestamp: int = wire.int64(default=-1)
    """The timestamp of the record; -1 for a special position."""
    offset: int = wire.int64(default=-1)
    leader_epoch: int = wire.int32("4+", default=-1)


class ListOffsetsTopicResponse(wire.Struct):
    """Results for the partitions of one topic."""

    name: str = wire.string()
    partitions: list[ListOffsetsPartitionResponse] = wire.array(ListOffsetsPartitionResponse)


class ListOffsetsResponse(wire.Message, versions="1-11", flexible="6+"):
    """The offset of each partition."""

    throttle_time_ms: int = wire.int32("2+")
    topics: list[ListOffsetsTopicResponse] = wire.array(ListOffsetsTopicResponse)


class OffsetForLeaderPartition(wire.Struct):
    """The requested epoch, and the current epoch as known to the client (-1: unknown)."""

    partition: int = wire.int32()
    current_leader_epoch: int = wire.int32("2+", default=-1)
    leader_epoch: int = wire.int32()


class OffsetForLeaderTopic(wire.Struct):
    """Partitions of one topic."""

    topic: str = wire.string()
    partitions: list[OffsetForLeaderPartition] = wire.array(OffsetForLeaderPartition)


class OffsetForLeaderEpochRequest(wire.Message, versions="2-4", flexible="4+"):
    """Requests the end offsets of epochs.

    Versions: 3 adds the replica id, 4 is flexible.
    """

    replica_id: int = wire.int32("3+", default=-2)
    """-1 for a consumer, -2 for a debugging consumer."""
    topics: list[OffsetForLeaderTopic] = wire.array(OffsetForLeaderTopic)


class EpochEndOffset(wire.Struct):
    """The largest epoch up to the requested one, and its end offset; -1 when unknown."""

    error_code: int = wire.int16()
    partition: int = wire.int32()
    leader_epoch: int = wire.int32("1+", default=-1)
    end_offset: int = wire.int64(default=-1)


class OffsetForLeaderTopicResult(wire.Struct):
    """Partitions of one topic."""

    topic: str = wire.string()
    partitions: list[EpochEndOffset] = wire.array(EpochEndOffset)


class OffsetForLeaderEpochResponse(wire.Message, versions="2-4", flexible="4+"):
    """The end offset of each epoch."""

    throttle_time_ms: int = wire.int32("2+")
    topics: list[OffsetForLeaderTopicResult] = wire.array(OffsetForLeaderTopicResult)


APIS = (
    Api(1, FetchRequest, FetchResponse),
    Api(2, ListOffsetsRequest, ListOffsetsResponse),
    Api(23, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse),
)
