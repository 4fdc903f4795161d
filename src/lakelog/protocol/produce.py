"""Produce: append record batches to partitions."""

from __future__ import annotations

from typing import Any

from lakelog.protocol.api import Api
from lakelog.protocol.metadata import LeaderIdAndEpoch, NodeEndpoint
from lakelog.wire import schema as wire


class PartitionProduceData(wire.Struct):
    """One batch for one partition, stored unchanged except for its offset and leader epoch."""

    index: int = wire.int32()
    records: Any = wire.records(nullable="0+")


class TopicProduceData(wire.Struct):
    """Batches for one topic."""

    name: str = wire.string("0-12")
    topic_id: bytes = wire.uuid("13+")
    partition_data: list[PartitionProduceData] = wire.array(PartitionProduceData)


class ProduceRequest(wire.Message, versions="3-13", flexible="9+"):
    """Appends one record batch to each partition.

    A request with `acks` 0 has no response; an error then closes the connection.

    Versions: 3 is the first with record batches of magic 2 (older versions are not supported, but
    are advertised for old clients), 7 allows zstd, 9 is flexible, 13 identifies topics by id only.
    """

    transactional_id: str | None = wire.string(nullable="0+", default=None)
    """Null unless the batches belong to a transaction."""
    acks: int = wire.int16()
    """0: no response, 1: respond after the leader's append, -1: after all in-sync replicas'."""
    timeout_ms: int = wire.int32()
    """Maximum time to wait for the other replicas."""
    topic_data: list[TopicProduceData] = wire.array(TopicProduceData)


class BatchIndexAndErrorMessage(wire.Struct):
    """A record that caused the rejection of its batch, by its index in the batch."""

    batch_index: int = wire.int32()
    batch_index_error_message: str | None = wire.error_text(default=None)


class PartitionProduceResponse(wire.Struct):
    """The result for one partition."""

    index: int = wire.int32()
    error_code: int = wire.int16()
    base_offset: int = wire.int64()
    """The offset of the first record, -1 after an error."""
    log_append_time_ms: int = wire.int64(default=-1)
    """The broker's timestamp of the records (ms) with LogAppendTime, else -1."""
    log_start_offset: int = wire.int64("5+", default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = wire.array(BatchIndexAndErrorMessage, "8+")
    error_message: str | None = wire.error_text("8+", default=None)
    current_leader: LeaderIdAndEpoch = wire.struct(LeaderIdAndEpoch, "10+", tag=0)


class TopicProduceResponse(wire.Struct):
    """Results for the partitions of one topic."""

    name: str = wire.string("0-12")
    topic_id: bytes = wire.uuid("13+")
    partition_responses: list[PartitionProduceResponse] = wire.array(PartitionProduceResponse)


class ProduceResponse(wire.Message, versions="3-13", flexible="9+"):
    """The offset of each batch, or an error.

    Versions: 5 adds the log start offset, 8 adds the rejected records of a batch, 10 adds the
    current leader to NOT_LEADER_OR_FOLLOWER (KIP-951), 13 identifies topics by id.
    """

    responses: list[TopicProduceResponse] = wire.array(TopicProduceResponse)
    throttle_time_ms: int = wire.int32()
    node_endpoints: list[NodeEndpoint] = wire.array(NodeEndpoint, "10+", tag=0)


APIS = (Api(0, ProduceRequest, ProduceResponse),)
