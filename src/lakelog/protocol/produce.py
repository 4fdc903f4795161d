"""Produce (key 0): append record batches to partitions."""

from __future__ import annotations

from typing import Any

from lakelog.wire.schema import (
    Message,
    Struct,
    array,
    error_text,
    int16,
    int32,
    int64,
    records,
    string,
    struct,
    uuid,
)


class PartitionProduceData(Struct):
    """One batch for one partition, stored as it is but for offset and epoch."""

    index: int = int32()
    records: Any = records(nullable="0+")


class TopicProduceData(Struct):
    """Batches for one topic."""

    name: str = string("0-12")
    topic_id: bytes = uuid("13+")
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


class ProduceRequest(Message, versions="3-13", flexible="9+"):
    """Asks the leaders of partitions to append one record batch each.

    A request with `acks` 0 is never answered; whatever goes wrong then closes the connection.

    Versions: 3 is the first with record batches of magic 2 (older ones are gone, yet clients expect
    to see 0 advertised), 7 allows zstd, 9 is flexible, 13 names topics by id only.
    """

    transactional_id: str | None = string(nullable="0+", default=None)
    """Null unless the batches belong to a transaction."""
    acks: int = int16()
    """0: do not answer; 1: when the leader has it; -1: when all in-sync replicas have it."""
    timeout_ms: int = int32()
    """How long to wait for the other replicas."""
    topic_data: list[TopicProduceData] = array(TopicProduceData)


class BatchIndexAndErrorMessage(Struct):
    """A record of the batch that caused its refusal, by its place in it."""

    batch_index: int = int32()
    batch_index_error_message: str | None = error_text(default=None)


class LeaderIdAndEpoch(Struct):
    """Who leads the partition now; -1 when that is not known here."""

    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


class PartitionProduceResponse(Struct):
    """The result of one partition."""

    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    """The offset of the first record, -1 on an error."""
    log_append_time_ms: int = int64(default=-1)
    """-1 unless the topic stamps records with the broker's time."""
    log_start_offset: int = int64("5+", default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, "8+")
    error_message: str | None = error_text("8+", default=None)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "10+", tag=0)


class TopicProduceResponse(Struct):
    """Results of one topic."""

    name: str = string("0-12")
    topic_id: bytes = uuid("13+")
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


class NodeEndpoint(Struct):
    """Where a broker named in `current_leader` can be reached."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)


class ProduceResponse(Message, versions="3-13", flexible="9+"):
    """Where each batch was stored, or why it was not.

    Versions: 5 adds the log start offset, 8 says which records of a batch were refused, 10 names
    the current leader beside NOT_LEADER_OR_FOLLOWER (KIP-951), 13 answers by topic id.
    """

    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32()
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", tag=0)
