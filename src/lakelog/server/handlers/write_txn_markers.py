"""WriteTxnMarkers (27): ends transactions in partitions, whatever their coordinator thinks.

Coordinators send it to the partitions' leaders. An administrator sends it to abort a hanging
transaction, one that its coordinator knows nothing of any more (KIP-664). Version 1 does not tell
the transaction version, and is judged as of before 2.
"""

from __future__ import annotations

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.protocol.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from lakelog.server.broker import Broker
from lakelog.server.dispatch import Context


def handle(
    broker: Broker, context: Context, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    """Results of a producer that is named twice come as one."""
    results: dict[int, WritableTxnMarkerResult] = {}
    for marker in request.markers:
        result = results.setdefault(
            marker.producer_id, WritableTxnMarkerResult(producer_id=marker.producer_id)
        )
        for topic in marker.topics:
            written = [
                WritableTxnMarkerPartitionResult(
                    partition_index=index, error_code=_write(broker, marker, topic.name, index)
                )
                for index in topic.partition_indexes
            ]
            result.topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=written))
    return WriteTxnMarkersResponse(markers=list(results.values()))


def _write(broker: Broker, marker: WritableTxnMarker, topic: str, index: int) -> ErrorCode:
    if marker.producer_id < 0 or marker.producer_epoch < 0:
        return ErrorCode.INVALID_REQUEST
    try:
        partition = broker.partitions.find(topic, index)
        partition.append_marker(
            marker.producer_id,
            marker.producer_epoch,
            marker.transaction_result,
            marker.coordinator_epoch,
            broker.clock.wall_ms(),
            transaction_version=marker.transaction_version,
        )
    except KafkaError as error:
        return error.code
    broker.purgatory.check(partition.key)
    return ErrorCode.NONE
