"""OffsetForLeaderEpoch (23): returns the end of a leader epoch, to detect truncation.

Source: KIP-101, KIP-279, KIP-320. The versions 2 to 4 differ in the replica id and the encoding.
"""

from __future__ import annotations

from lakelog.base.errors import KafkaError
from lakelog.protocol.fetch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi


def handle(
    broker: Broker, context: Context, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_end(broker, topic.topic, entry) for entry in topic.partitions],
            )
            for topic in request.topics
        ]
    )


API = ServedApi(OffsetForLeaderEpochRequest, handle, done="All.")


def _end(broker: Broker, topic: str, entry: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = broker.partitions.leader(topic, entry.partition)
        partition.check_epoch(entry.current_leader_epoch)
        epoch, end = partition.epoch_end(entry.leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(partition=entry.partition, error_code=error.code)
    return EpochEndOffset(partition=entry.partition, leader_epoch=epoch, end_offset=end)
