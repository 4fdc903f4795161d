"""The ids of producers, and the producers that the log of a partition knows."""

from __future__ import annotations

from lakelog.protocol.api import OWN_TAGS, Api
from lakelog.protocol.commit_sets import RefusedCommitSet, SinkParent, SinkRun, SinkState
from lakelog.wire import schema as wire


class InitProducerIdRequest(wire.Message, versions="0-6", flexible="2+"):
    """Requests a producer id and epoch.

    Versions: 2 is flexible, 3 lets a producer keep its id with the next epoch (KIP-360), 4 and 5
    change the errors that a client expects, 6 adds two-phase commit (KIP-939) and is not stable.
    """

    transactional_id: str | None = wire.string(nullable="0+")
    """Null for a producer without transactions."""
    transaction_timeout_ms: int = wire.int32()
    producer_id: int = wire.int64("3+", default=-1)
    """The current producer id, -1 for none."""
    producer_epoch: int = wire.int16("3+", default=-1)
    """The current producer epoch, -1 for none."""
    enable2_pc: bool = wire.boolean("6+")
    keep_prepared_txn: bool = wire.boolean("6+")
    run: SinkRun | None = wire.struct(SinkRun, "2+", nullable="2+", tag=OWN_TAGS, default=None)
    """The transactional id is a sink, and this run of its query begins or continues."""
    parent: SinkParent | None = wire.struct(
        SinkParent, "2+", nullable="2+", tag=OWN_TAGS + 1, default=None
    )
    """The transactional id is a child of this sink."""


class InitProducerIdResponse(wire.Message, versions="0-6", flexible="2+"):
    """The producer id and epoch for record batches."""

    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    producer_id: int = wire.int64(default=-1)
    producer_epoch: int = wire.int16()
    ongoing_txn_producer_id: int = wire.int64("6+", default=-1)
    ongoing_txn_producer_epoch: int = wire.int16("6+", default=-1)
    sink: SinkState | None = wire.struct(SinkState, "2+", nullable="2+", tag=OWN_TAGS, default=None)
    """The sink that the request named or whose child it named."""
    refused: RefusedCommitSet | None = wire.struct(
        RefusedCommitSet, "2+", nullable="2+", tag=OWN_TAGS + 1, default=None
    )


class TopicRequest(wire.Struct):
    """Partitions of one topic."""

    name: str = wire.string()
    partition_indexes: list[int] = wire.array(wire.int32)


class DescribeProducersRequest(wire.Message, versions="0", flexible="0+"):
    """Requests the idempotent and transactional producers of some partitions (KIP-664)."""

    topics: list[TopicRequest] = wire.array(TopicRequest)
    producer_ids: list[int] = wire.array(wire.int64, tag=OWN_TAGS)
    """Only these producers; empty for all. Apache Kafka ignores the field and returns all."""


class ProducerState(wire.Struct):
    """The state of one producer in the partition's log."""

    producer_id: int = wire.int64()
    producer_epoch: int = wire.int32()
    last_sequence: int = wire.int32(default=-1)
    last_timestamp: int = wire.int64(default=-1)
    coordinator_epoch: int = wire.int32()
    """The epoch of the coordinator that ended its last transaction here; -1 before the first."""
    current_txn_start_offset: int = wire.int64(default=-1)
    """The start offset of its open transaction; -1 without one."""


class PartitionResponse(wire.Struct):
    """The producers of one partition."""

    partition_index: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.error_text(default=None)
    active_producers: list[ProducerState] = wire.array(ProducerState)


class TopicResponse(wire.Struct):
    """Results for the partitions of one topic."""

    name: str = wire.string()
    partitions: list[PartitionResponse] = wire.array(PartitionResponse)


class DescribeProducersResponse(wire.Message, versions="0", flexible="0+"):
    """The producers whose state is kept, by default for a day after their last write."""

    throttle_time_ms: int = wire.int32()
    topics: list[TopicResponse] = wire.array(TopicResponse)


APIS = (
    Api(22, InitProducerIdRequest, InitProducerIdResponse, latest_is_unstable=True),
    Api(61, DescribeProducersRequest, DescribeProducersResponse),
)
