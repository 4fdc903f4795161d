"""Producers and transactions: their ids, their partitions, their end and their state."""

from __future__ import annotations

from lakelog.protocol.api import OWN_TAGS, Api
from lakelog.protocol.commit_sets import (
    ChildState,
    CommitSet,
    RefusedCommitSet,
    SinkParent,
    SinkRun,
    SinkState,
)
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


class AddPartitionsToTxnTopic(wire.Struct):
    """Partitions of one topic."""

    name: str = wire.string()
    partitions: list[int] = wire.array(wire.int32)


class AddPartitionsToTxnTransaction(wire.Struct):
    """One transaction in a request of a broker."""

    transactional_id: str = wire.string("4+")
    producer_id: int = wire.int64("4+")
    producer_epoch: int = wire.int16("4+")
    verify_only: bool = wire.boolean("4+")
    """Whether to verify only that the partitions belong to the transaction, without adding them."""
    topics: list[AddPartitionsToTxnTopic] = wire.array(AddPartitionsToTxnTopic, "4+")


class AddPartitionsToTxnRequest(wire.Message, versions="0-5", flexible="3+"):
    """Adds partitions to the ongoing transaction of a producer, or begins one.

    Versions: up to 3 a client adds to its own transaction; 2 adds PRODUCER_FENCED, 3 is flexible.
    From 4 on brokers send several transactions in one request (KIP-890); 5 adds
    TRANSACTION_ABORTABLE.
    """

    transactions: list[AddPartitionsToTxnTransaction] = wire.array(
        AddPartitionsToTxnTransaction, "4+"
    )
    v3_and_below_transactional_id: str = wire.string("0-3")
    v3_and_below_producer_id: int = wire.int64("0-3")
    v3_and_below_producer_epoch: int = wire.int16("0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = wire.array(AddPartitionsToTxnTopic, "0-3")


class AddPartitionsToTxnPartitionResult(wire.Struct):
    """The result for one partition."""

    partition_index: int = wire.int32()
    partition_error_code: int = wire.int16()


class AddPartitionsToTxnTopicResult(wire.Struct):
    """Results for the partitions of one topic."""

    name: str = wire.string()
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = wire.array(
        AddPartitionsToTxnPartitionResult
    )


class AddPartitionsToTxnResult(wire.Struct):
    """Results for the partitions of one transaction."""

    transactional_id: str = wire.string("4+")
    topic_results: list[AddPartitionsToTxnTopicResult] = wire.array(
        AddPartitionsToTxnTopicResult, "4+"
    )


class AddPartitionsToTxnResponse(wire.Message, versions="0-5", flexible="3+"):
    """An error code per partition."""

    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16("4+")
    results_by_transaction: list[AddPartitionsToTxnResult] = wire.array(
        AddPartitionsToTxnResult, "4+"
    )
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = wire.array(
        AddPartitionsToTxnTopicResult, "0-3"
    )


class AddOffsetsToTxnRequest(wire.Message, versions="0-4", flexible="3+"):
    """Adds the partition of `__consumer_offsets` that belongs to a group.

    Versions: 2 adds PRODUCER_FENCED, 3 is flexible, 4 adds TRANSACTION_ABORTABLE. A producer with
    transaction version 2 does not send this request (KIP-890).
    """

    transactional_id: str = wire.string()
    producer_id: int = wire.int64()
    producer_epoch: int = wire.int16()
    group_id: str = wire.string()


class AddOffsetsToTxnResponse(wire.Message, versions="0-4", flexible="3+"):
    """The result."""

    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()


class EndTxnRequest(wire.Message, versions="0-5", flexible="3+"):
    """Ends the ongoing transaction of a producer.

    Versions: 2 adds PRODUCER_FENCED, 3 is flexible, 4 adds TRANSACTION_ABORTABLE, 5 raises the
    epoch with every transaction (KIP-890).
    """

    transactional_id: str = wire.string()
    producer_id: int = wire.int64()
    producer_epoch: int = wire.int16()
    committed: bool = wire.boolean()
    """Whether to commit; otherwise abort."""
    commit_set: CommitSet | None = wire.struct(
        CommitSet, "3+", nullable="3+", tag=OWN_TAGS, default=None
    )
    """The transactional id is a sink, of which this batch ends."""
    removes_sink: bool = wire.boolean("3+", tag=OWN_TAGS + 1)
    """Abort all children of the sink, and forget it; an administrator's request."""


class EndTxnResponse(wire.Message, versions="0-5", flexible="3+"):
    """The result, and from version 5 on the producer id and epoch of the next transaction."""

    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    producer_id: int = wire.int64("5+", default=-1)
    producer_epoch: int = wire.int16("5+", default=-1)
    sink: SinkState | None = wire.struct(SinkState, "3+", nullable="3+", tag=OWN_TAGS, default=None)
    """The sink after the request."""
    refused: RefusedCommitSet | None = wire.struct(
        RefusedCommitSet, "3+", nullable="3+", tag=OWN_TAGS + 1, default=None
    )


class WritableTxnMarkerTopic(wire.Struct):
    """Partitions of one topic."""

    name: str = wire.string()
    partition_indexes: list[int] = wire.array(wire.int32)


class WritableTxnMarker(wire.Struct):
    """The end of one producer's transaction."""

    producer_id: int = wire.int64()
    producer_epoch: int = wire.int16()
    transaction_result: bool = wire.boolean()
    """Whether the transaction is committed; otherwise aborted."""
    topics: list[WritableTxnMarkerTopic] = wire.array(WritableTxnMarkerTopic)
    coordinator_epoch: int = wire.int32()
    """The leader epoch of the coordinator's partition of `__transaction_state`."""
    transaction_version: int = wire.int8("2+", default=0)
    """2 if the coordinator raises the producer's epoch before each marker (KIP-890)."""
    decision: int = wire.int64(tag=OWN_TAGS, default=-1)
    """Number of the coordinator's decision, which rises within its epoch; -1 for none."""


class WriteTxnMarkersRequest(wire.Message, versions="1-2", flexible="1+"):
    """Writes markers, for transaction coordinators, and for administrators to end a hanging
    transaction.

    Versions: 2 adds the transaction version (KIP-1228).
    """

    markers: list[WritableTxnMarker] = wire.array(WritableTxnMarker)


class WritableTxnMarkerPartitionResult(wire.Struct):
    """The result of writing the marker to one partition."""

    partition_index: int = wire.int32()
    error_code: int = wire.int16()


class WritableTxnMarkerTopicResult(wire.Struct):
    """Results for the partitions of one topic."""

    name: str = wire.string()
    partitions: list[WritableTxnMarkerPartitionResult] = wire.array(
        WritableTxnMarkerPartitionResult
    )


class WritableTxnMarkerResult(wire.Struct):
    """Results for the partitions of one producer."""

    producer_id: int = wire.int64()
    topics: list[WritableTxnMarkerTopicResult] = wire.array(WritableTxnMarkerTopicResult)


class WriteTxnMarkersResponse(wire.Message, versions="1-2", flexible="1+"):
    """The result for each marker."""

    markers: list[WritableTxnMarkerResult] = wire.array(WritableTxnMarkerResult)


class DescribeTransactionsRequest(wire.Message, versions="0", flexible="0+"):
    """Requests transactional ids from their coordinator (KIP-664)."""

    transactional_ids: list[str] = wire.array(wire.string)


class TopicData(wire.Struct):
    """Partitions of one topic."""

    topic: str = wire.string()
    partitions: list[int] = wire.array(wire.int32)


class DescribedTransaction(wire.Struct):
    """The state of one transactional id."""

    error_code: int = wire.int16()
    transactional_id: str = wire.string()
    transaction_state: str = wire.string()
    transaction_timeout_ms: int = wire.int32()
    transaction_start_time_ms: int = wire.int64()
    """The start of the transaction in ms since the Unix epoch; -1 before the first transaction."""
    producer_id: int = wire.int64()
    producer_epoch: int = wire.int16()
    topics: list[TopicData] = wire.array(TopicData)
    """Partitions in the transaction; while it ends, only the partitions without a marker."""
    sink: SinkState | None = wire.struct(SinkState, nullable="0+", tag=OWN_TAGS, default=None)
    """The control record, if the transactional id is a sink."""
    children: list[ChildState] = wire.array(ChildState, tag=OWN_TAGS + 1)
    """The children of the sink whose transactions have not ended."""


class DescribeTransactionsResponse(wire.Message, versions="0", flexible="0+"):
    """One state for each requested id."""

    throttle_time_ms: int = wire.int32()
    transaction_states: list[DescribedTransaction] = wire.array(DescribedTransaction)


NOT_A_SINK = -2
"""The next batch of an ordinary transactional id."""


class ListTransactionsRequest(wire.Message, versions="0-2", flexible="0+"):
    """Requests all transactional ids, or matching ones (all filters together) (KIP-664).

    Versions: 1 filters by duration (KIP-994), 2 by a pattern of the id (KIP-1152).
    """

    state_filters: list[str] = wire.array(wire.string)
    producer_id_filters: list[int] = wire.array(wire.int64)
    duration_filter: int = wire.int64("1+", default=-1)
    """The minimum duration of the transaction in ms; negative matches all."""
    transactional_id_pattern: str | None = wire.string("2+", nullable="2+", default=None)
    """A regular expression for the whole id; null and empty match all."""


class ListedTransaction(wire.Struct):
    """One transactional id."""

    transactional_id: str = wire.string()
    producer_id: int = wire.int64()
    transaction_state: str = wire.string()
    next_batch: int = wire.int64(tag=OWN_TAGS, default=NOT_A_SINK)
    """The next batch if the id is a sink, -1 before its first commit."""
    open_children: int = wire.int32(tag=OWN_TAGS + 1)
    """The children of the sink whose transactions have not ended."""


class ListTransactionsResponse(wire.Message, versions="0-2", flexible="0+"):
    """The matching transactional ids, and the unknown states among the filters."""

    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    unknown_state_filters: list[str] = wire.array(wire.string)
    transaction_states: list[ListedTransaction] = wire.array(ListedTransaction)


APIS = (
    Api(22, InitProducerIdRequest, InitProducerIdResponse, latest_is_unstable=True),
    Api(61, DescribeProducersRequest, DescribeProducersResponse),
    Api(24, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse),
    Api(25, AddOffsetsToTxnRequest, AddOffsetsToTxnResponse),
    Api(26, EndTxnRequest, EndTxnResponse),
    Api(27, WriteTxnMarkersRequest, WriteTxnMarkersResponse),
    Api(65, DescribeTransactionsRequest, DescribeTransactionsResponse),
    Api(66, ListTransactionsRequest, ListTransactionsResponse),
)
