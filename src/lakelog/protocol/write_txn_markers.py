"""WriteTxnMarkers (key 27): end transactions in their partitions."""

from __future__ import annotations

from lakelog.protocol.api import OWN_TAGS, Api
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
    """Whether the transaction is committed; otherwise aborted."""
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
    coordinator_epoch: int = int32()
    """The leader epoch of the coordinator's partition of `__transaction_state`."""
    transaction_version: int = int8("2+", default=0)
    """2 if the coordinator raises the producer's epoch before each marker (KIP-890)."""
    decision: int = int64(tag=OWN_TAGS, default=-1)
    """Number of the coordinator's decision, which rises within its epoch; -1 for none."""


class WriteTxnMarkersRequest(Message, versions="1-2", flexible="1+"):
    """Writes markers, for transaction coordinators, and for administrators to end a hanging
    transaction.

    Versions: 2 adds the transaction version (KIP-1228).
    """

    markers: list[WritableTxnMarker] = array(WritableTxnMarker)


class WritableTxnMarkerPartitionResult(Struct):
    """The result of writing the marker to one partition."""

    partition_index: int = int32()
    error_code: int = int16()


class WritableTxnMarkerTopicResult(Struct):
    """Results for the partitions of one topic."""

    name: str = string()
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult)


class WritableTxnMarkerResult(Struct):
    """Results for the partitions of one producer."""

    producer_id: int = int64()
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)


class WriteTxnMarkersResponse(Message, versions="1-2", flexible="1+"):
    """The result for each marker."""

    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)


API = Api(27, WriteTxnMarkersRequest, WriteTxnMarkersResponse)
