"""Reading record batches, and the offsets at which readers begin or diverge."""

from __future__ import annotations

from typing import Any

from lakelog.protocol.api import Api
from lakelog.protocol.metadata import LeaderIdAndEpoch, NodeEndpoint
from lakelog.wire.schema import (
    Message,
    Struct,
    array,
    int8,
    int16,
    int32,
    int64,
    records,
    string,
    struct,
    uuid,
)


class ReplicaState(Struct):
    """Identity of a follower: node id and the epoch of its registration."""

    replica_id: int = int32(default=-1)
    replica_epoch: int = int64(default=-1)


class FetchPartition(Struct):
    """The offset to fetch from in one partition, and the maximum bytes."""

    partition: int = int32()
    current_leader_epoch: int = int32("9+", default=-1)
    """-1 skips the check."""
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32("12+", default=-1)
    """-1 skips the check for divergence."""
    log_start_offset: int = int64("5+", default=-1)
    """The follower's log start offset; -1 for a consumer."""
    partition_max_bytes: int = int32()
    replica_directory_id: bytes = uuid("17+", tag=0)
    high_watermark: int = int64("18+", tag=1, default=2**63 - 1)


class FetchTopic(Struct):
    """Partitions of one topic."""

    topic: str = string("0-12")
    topic_id: bytes = uuid("13+")
    partitions: list[FetchPartition] = array(FetchPartition)


class ForgottenTopic(Struct):
    """Partitions to drop from the session."""

    topic: str = string("7-12")
    topic_id: bytes = uuid("13+")
    partitions: list[int] = array(int32)


class FetchRequest(Message, versions="4-18", flexible="12+"):
    """Requests the batches at and after given offsets; waits up to `max_wait_ms` for `min_bytes`.

    In a fetch session (KIP-227) `topics` has new and changed partitions only, and
    `forgotten_topics_data` the removed ones. Session (0, -1) means no session.

    Versions: 4 adds isolation levels, 7 sessions, 9 leader epochs that fence old clients, 10 allows
    zstd, 11 adds the rack to fetch from a close replica, 12 is flexible and detects diverged logs,
    13 identifies topics by id only, 15 moves the follower's identity to `replica_state`, 17 adds
    the follower's directory and 18 its known high watermark.
    """

    cluster_id: str | None = string("12+", nullable="0+", tag=0, default=None)
    """Checked if not null; sent by KRaft replicas only."""
    replica_id: int = int32("0-14", default=-1)
    """The follower's node id, -1 for a consumer."""
    replica_state: ReplicaState = struct(ReplicaState, "15+", tag=1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=2**31 - 1)
    isolation_level: int = int8()
    """0: read up to the high watermark, 1: up to the last stable offset."""
    session_id: int = int32("7+")
    session_epoch: int = int32("7+", default=-1)
    """0: open a session, -1: close it or use none, else the number of the request."""
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "7+")
    rack_id: str = string("11+")


class DivergingEpoch(Struct):
    """The largest epoch at which the follower's log can agree, and its end offset; -1 if none."""

    epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


class SnapshotId(Struct):
    """The snapshot to load instead; only metadata partitions of KRaft have them."""

    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


class AbortedTransaction(Struct):
    """A producer whose records from `first_offset` on must be skipped."""

    producer_id: int = int64()
    first_offset: int = int64()


class PartitionData(Struct):
    """Data of one partition. `records` can be a range of a file; null means empty."""

    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64(default=-1)
    """The last stable offset, below which no transaction is open; -1 when unknown."""
    log_start_offset: int = int64("5+", default=-1)
    diverging_epoch: DivergingEpoch = struct(DivergingEpoch, "12+", tag=0)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "12+", tag=1)
    snapshot_id: SnapshotId = struct(SnapshotId, "12+", tag=2)
    aborted_transactions: list[AbortedTransaction] | None = array(AbortedTransaction, nullable="0+")
    """Null unless the isolation level is 1."""
    preferred_read_replica: int = int32("11+", default=-1)
    """The replica from which to fetch instead; -1 for the leader."""
    records: Any = records(nullable="0+")


class FetchableTopicResponse(Struct):
    """Data of one topic."""

    topic: str = string("0-12")
    topic_id: bytes = uuid("13+")
    partitions: list[PartitionData] = array(PartitionData)


class FetchResponse(Message, versions="4-18", flexible="12+"):
    """Record batches as they are stored.

    The first batch may begin before the requested offset. The first partition with data returns at
    least one batch, whatever its size.

    Versions: 4 adds aborted transactions, 5 the log start offset, 7 sessions and an error for the
    whole response, 11 the preferred replica, 12 the diverging epoch and the current leader, 13
    topic ids, 16 the addresses of new leaders (KIP-951).
    """

    throttle_time_ms: int = int32()
    error_code: int = int16("7+")
    session_id: int = int32("7+")
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "16+", tag=0)


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


APIS = (
    Api(1, FetchRequest, FetchResponse),
    Api(2, ListOffsetsRequest, ListOffsetsResponse),
    Api(23, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse),
)
