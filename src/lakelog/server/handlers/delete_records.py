"""DeleteRecords (21): advances log start offsets; version 2 differs in encoding only.

Records before the offset cannot be read any more; the next retention run deletes their segments.
A new leader first learns from its followers which records are committed: acknowledged ones are
never out of range.
The response waits until the new offsets are durable; concurrent requests share one checkpoint.
So deleted records come back neither after a kill nor after a power failure. Then it waits until all
live followers have deleted the records, too (KIP-107): a new leader does not have them either.
Topics that are only compacted reject the request, because they delete records by key. A topic with
a table (`table.enable`) rejects it for records that are not archived yet, unless `force` is set.
"""

from __future__ import annotations

import logging

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.events import event
from lakelog.protocol.topics import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from lakelog.replica.partition import Partition
from lakelog.server.appends.deletion import Deletion, beginning, completed
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi
from lakelog.server.topics.topics import INTERNAL_TOPICS

logger = logging.getLogger(__name__)

_HIGH_WATERMARK = -1
_UNKNOWN = -1


async def handle(
    broker: Broker, context: Context, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    """Advance the log start offsets, and answer when they are durable on all live replicas.

    If they cannot be made durable, the partitions have KAFKA_STORAGE_ERROR and low watermark -1.
    Partitions with followers that take longer than the request allows have REQUEST_TIMED_OUT: their
    records are deleted here, and will be there. So have partitions whose new leader has not learned
    in that time whether the records are committed: it has deleted nothing.
    """
    deadline = broker.clock.monotonic() + request.timeout_ms / 1000
    await _begun(broker, request, deadline)
    topics = [
        DeleteRecordsTopicResult(
            name=topic.name,
            partitions=[
                _delete(broker, topic.name, entry, force=request.force)
                for entry in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    results = [result for topic in topics for result in topic.partitions if not result.error_code]
    if results and not await broker.checkpointed():
        for result in results:
            result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            result.low_watermark = _UNKNOWN
    _log_durable(broker, topics)
    await _replicated(broker, topics, deadline)
    return DeleteRecordsResponse(topics=topics)


API = ServedApi(
    DeleteRecordsRequest,
    handle,
    done="All; the response is sent when the change is durable on all live replicas.",
)


async def _begun(broker: Broker, request: DeleteRecordsRequest, deadline: float) -> None:
    """Wait where a new leader does not know yet whether the records are committed."""
    ends = [
        (broker.partitions.get(topic.name, entry.partition_index), entry.offset)
        for topic in request.topics
        for entry in topic.partitions
    ]
    waits = [
        beginning(partition)
        for partition, offset in ends
        if partition is not None and not _is_committed(partition, offset)
    ]
    await completed(waits, broker.purgatory, broker.clock, deadline)


def _is_committed(partition: Partition, offset: int) -> bool:
    return 0 <= offset <= partition.watermark.offset


def _delete(
    broker: Broker, topic: str, entry: DeleteRecordsPartition, *, force: bool
) -> DeleteRecordsPartitionResult:
    index = entry.partition_index
    try:
        if topic in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is internal")
        partition = broker.partitions.leader(topic, index)
        if not _is_committed(partition, entry.offset):
            beginning(partition).check()
        before = partition.watermark.offset if entry.offset == _HIGH_WATERMARK else entry.offset
        start = partition.log.log_start_offset
        low = partition.delete_records(before, force=force)
        if low > start:
            broker.noted_starts.setdefault(partition, start)
    except KafkaError as error:
        return DeleteRecordsPartitionResult(
            partition_index=index, low_watermark=_UNKNOWN, error_code=error.code
        )
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=low)


async def _replicated(
    broker: Broker, topics: list[DeleteRecordsTopicResult], deadline: float
) -> None:
    """Wait until the live followers have deleted the records, and set the errors of the others."""

    def live() -> frozenset[int]:
        image = broker.image
        return frozenset(image.brokers) - image.fenced

    deletions = [
        (result, Deletion(partition, result.low_watermark, partition.leader_epoch, live))
        for topic in topics
        for result in topic.partitions
        if not result.error_code
        and (partition := broker.partitions.get(topic.name, result.partition_index)) is not None
    ]
    waits = [deletion for _, deletion in deletions]
    await completed(waits, broker.purgatory, broker.clock, deadline)
    for result, deletion in deletions:
        try:
            deletion.check()
        except KafkaError as error:
            result.error_code, result.low_watermark = error.code, _UNKNOWN


def _log_durable(broker: Broker, topics: list[DeleteRecordsTopicResult]) -> None:
    """Log each deletion that succeeded, possibly after failed attempts."""
    for topic in topics:
        for result in topic.partitions:
            partition = broker.partitions.get(topic.name, result.partition_index)
            start = broker.noted_starts.get(partition) if partition is not None else None
            if partition is None or start is None or result.low_watermark <= start:
                continue
            if partition.log.log_start_offset > result.low_watermark:
                broker.noted_starts[partition] = result.low_watermark
            else:
                del broker.noted_starts[partition]
            _log(topic.name, result, start)
    for partition in [partition for partition in broker.noted_starts if partition.is_retired]:
        del broker.noted_starts[partition]


def _log(topic: str, result: DeleteRecordsPartitionResult, start: int) -> None:
    logger.info(
        "Deleted records of %s-%d from offset %d to before %d",
        topic,
        result.partition_index,
        start,
        result.low_watermark,
        extra=event(
            "records_deleted",
            topic=topic,
            partition=result.partition_index,
            log_start_offset=result.low_watermark,
            log_start_offset_before=start,
        ),
    )
