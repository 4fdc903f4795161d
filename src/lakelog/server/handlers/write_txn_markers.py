"""WriteTxnMarkers (27): ends transactions in partitions without asking their coordinator.

Coordinators send it to the partitions' leaders. An administrator sends it to abort a hanging
transaction, which its coordinator does not know any more (KIP-664). Version 1 has no transaction
version; such a request is treated as of version 1.
"""

from __future__ import annotations

from collections.abc import Sequence

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.transaction.endings import Marker
from lakelog.protocol.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi

_NONE = -1


async def handle(
    broker: Broker, context: Context, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    """Return one result for each producer, even if it is named twice."""
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


API = ServedApi(
    WriteTxnMarkersRequest, handle, done="Requests of administrators and of other brokers."
)


async def _write(
    broker: Broker, marker: WritableTxnMarker, topic: str, indexes: Sequence[int]
) -> Sequence[ErrorCode]:
    refusal = _refusal(marker)
    if refusal is not None:
        return [_absence(broker, topic, index) or refusal for index in indexes]
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
                marker.decision,
            )
            for index in indexes
        ]
    )


def _absence(broker: Broker, topic: str, index: int) -> ErrorCode:
    try:
        broker.partitions.leader(topic, index)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def _refusal(marker: WritableTxnMarker) -> ErrorCode | None:
    """Return Kafka's error code for an impossible producer, and one for ids below -1.

    Kafka fails to build a marker without producer or epoch (-1), and writes one for lower ids.
    """
    if _NONE in (marker.producer_id, marker.producer_epoch):
        return ErrorCode.UNKNOWN_SERVER_ERROR
    if marker.producer_id < 0:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.INVALID_PRODUCER_EPOCH if marker.producer_epoch < 0 else None
