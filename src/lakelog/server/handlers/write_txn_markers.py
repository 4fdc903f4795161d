"""WriteTxnMarkers (27): ends transactions in partitions, whatever their coordinator thinks.

Coordinators send it to the partitions' leaders. An administrator sends it to abort a hanging
transaction, one that its coordinator knows nothing of any more (KIP-664). Version 1 does not tell
the transaction version, and is judged as of before 2.
"""

from __future__ import annotations

from collections.abc import Sequence

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.transaction.markers import Marker
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


async def handle(
    broker: Broker, context: Context, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    """Results of a producer that is named twice come as one."""
    results: dict[int, WritableTxnMarkerResult] = {}
    for marker in request.markers:
        result = results.setdefault(
            marker.producer_id, WritableTxnMarkerResult(producer_id=marker.producer_id)
        )
        for topic in marker.topics:
            indexes = topic.partition_indexes
            codes = await _write(broker, marker, topic.name, indexes)
            written = [
                WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                for index, code in zip(indexes, codes, strict=True)
            ]
            result.topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=written))
    return WriteTxnMarkersResponse(markers=list(results.values()))


async def _write(
    broker: Broker, marker: WritableTxnMarker, topic: str, indexes: Sequence[int]
) -> Sequence[ErrorCode]:
    if marker.producer_id < 0 or marker.producer_epoch < 0:
        return [ErrorCode.INVALID_REQUEST] * len(indexes)
    return await broker.markers.write(
        [
            Marker(
                topic,
                index,
                marker.producer_id,
                marker.producer_epoch,
                marker.transaction_result,
                marker.coordinator_epoch,
                marker.transaction_version,
            )
            for index in indexes
        ]
    )
