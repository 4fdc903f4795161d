"""ListOffsets (2): where a partition begins, ends, or stood at a time.

With `read_committed` it ends at its last stable offset, and what a time finds beyond that is not
told.
"""

from __future__ import annotations

from collections import Counter

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.protocol.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from lakelog.replica.partition import Partition
from lakelog.server.broker import Broker
from lakelog.server.dispatch import Context

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
_SINCE_VERSION = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_READ_COMMITTED = 1


def handle(broker: Broker, context: Context, request: ListOffsetsRequest) -> ListOffsetsResponse:
    committed = request.isolation_level == _READ_COMMITTED
    topics = []
    repeated = _repeated(request)
    for topic in request.topics:
        results = []
        for entry in topic.partitions:
            try:
                if (topic.name, entry.partition_index) in repeated:
                    raise KafkaError(ErrorCode.INVALID_REQUEST)
                partition = broker.partitions.find(topic.name, entry.partition_index)
                partition.check_epoch(entry.current_leader_epoch)
                result = _offset(partition, entry, committed, context.version)
            except KafkaError as error:
                result = ListOffsetsPartitionResponse(error_code=error.code)
            result.partition_index = entry.partition_index
            results.append(result)
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=results))
    return ListOffsetsResponse(topics=topics)


def _repeated(request: ListOffsetsRequest) -> set[tuple[str, int]]:
    counts = Counter(
        (topic.name, entry.partition_index)
        for topic in request.topics
        for entry in topic.partitions
    )
    return {partition for partition, count in counts.items() if count > 1}


def _offset(
    partition: Partition, entry: ListOffsetsPartition, committed: bool, version: int
) -> ListOffsetsPartitionResponse:
    wanted = entry.timestamp
    if wanted < EARLIEST_PENDING_UPLOAD or version < _SINCE_VERSION.get(wanted, 0):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    log = partition.log
    if wanted == LATEST:
        end = partition.last_stable_offset if committed else partition.high_watermark
        return ListOffsetsPartitionResponse(offset=end, leader_epoch=partition.leader_epoch)
    if wanted in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset
        return ListOffsetsPartitionResponse(
            offset=start, leader_epoch=log.leader_epochs.epoch_of(start)
        )
    if wanted in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return ListOffsetsPartitionResponse()
    found = partition.max_timestamp() if wanted == MAX_TIMESTAMP else partition.at_time(wanted)
    if found is None or (committed and found.offset >= partition.last_stable_offset):
        return ListOffsetsPartitionResponse()
    return ListOffsetsPartitionResponse(
        timestamp=found.timestamp, offset=found.offset, leader_epoch=found.leader_epoch
    )
