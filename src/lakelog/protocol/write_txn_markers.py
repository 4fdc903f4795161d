"""WriteTxnMarkers (key 27): end transactions in the partitions that they wrote to."""

from __future__ import annotations

from lakelog.wire.schema import Message, Struct, array, boolean, int8, int16, int32, int64, string


class WritableTxnMarkerTopic(Struct):
    """Partitions of one topic."""

    name: str = string()
    partition_indexes: list[int] = array(int32)


class WritableTxnMarker(Struct):
    """The end of one producer's transaction."""

    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = boolean()
    """Whether it commits."""
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
    coordinator_epoch: int = int32()
    """Of the partition of `__transaction_state` that the coordinator leads."""
    transaction_version: int = int8("2+", default=0)
    """2 if the coordinator bumps the producer's epoch before each marker (KIP-890)."""


class WriteTxnMarkersRequest(Message, versions="1-2", flexible="1+"):
    """Sent by transaction coordinators, and by administrators to abort a hanging transaction.

    Version 2 adds the transaction version (KIP-1228).
    """

    markers: list[WritableTxnMarker] = array(WritableTxnMarker)


class WritableTxnMarkerPartitionResult(Struct):
    """Whether the marker has been written to one partition."""

    partition_index: int = int32()
    error_code: int = int16()


class WritableTxnMarkerTopicResult(Struct):
    """Results of one topic."""

    name: str = string()
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult)


class WritableTxnMarkerResult(Struct):
    """Results of one producer."""

    producer_id: int = int64()
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)


class WriteTxnMarkersResponse(Message, versions="1-2", flexible="1+"):
    """Which markers have been written."""

    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)
