"""Deletes the first records of a partition."""

from __future__ import annotations

from collections.abc import Mapping

from lakelog.base.errors import ErrorCode
from lakelog.client.cluster import Cluster
from lakelog.client.errors import (
    ConnectionLostError,
    OffsetOutOfRangeError,
    UnreachableError,
    check,
)
from lakelog.client.offsets import EARLIEST, LATEST, TopicPartition, list_offsets
from lakelog.protocol.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)

HIGH_WATERMARK = -1
"""Stands for the end of the readable part, in place of an offset to delete before."""


def check_reached(cluster: Cluster, before: Mapping[TopicPartition, int]) -> None:
    """Raise `OffsetOutOfRangeError` for the first partition that ends before its offset."""
    ends = list_offsets(cluster, dict.fromkeys(before, LATEST))
    for key, offset in sorted(before.items()):
        if not HIGH_WATERMARK <= offset <= ends[key].offset:
            start = list_offsets(cluster, {key: EARLIEST})[key].offset
            raise OffsetOutOfRangeError(*key, offset, start, ends[key].offset)


def delete_before(
    cluster: Cluster, key: TopicPartition, offset: int, *, force: bool = False
) -> int:
    """Ask the leader once; return the new start of the partition. Safe to repeat.

    force: delete records that the topic's table does not have yet, too; ignored by Apache Kafka.

    Raises `UnreachableError`, OFFSET_OUT_OF_RANGE if `offset` is beyond the high watermark, and
    other errors of the leader as `ClientError` (KIP-107).
    """
    topic, partition = key
    request = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name=topic,
                partitions=[DeleteRecordsPartition(partition_index=partition, offset=offset)],
            )
        ],
        timeout_ms=int(cluster.request_timeout_s * 1000),
        force=force,
    )
    node = cluster.leader(topic, partition).node_id
    try:
        response = cluster.ask(node, request, DeleteRecordsResponse)
    except ConnectionLostError as error:
        raise UnreachableError.after(error) from error
    (row,) = (row for answer in response.topics for row in answer.partitions)
    check(row.error_code, f"{topic}-{partition}{_reason(row.error_code, offset)}")
    low: int = row.low_watermark
    return low


def _reason(code: int, offset: int) -> str:
    """Return the description of an error, because the response has no text."""
    if code == ErrorCode.POLICY_VIOLATION:
        return (
            " is only compacted: its records are removed by key, not by offset. Or its table lacks "
            f"records before offset {offset}: archive them first, or force the deletion"
        )
    if code == ErrorCode.KAFKA_STORAGE_ERROR:
        return (
            ": the broker could not make the deletion durable (its disk is full or has failed); "
            "the records may or may not be deleted: free space and retry"
        )
    return f" has no offset {offset}" if code == ErrorCode.OFFSET_OUT_OF_RANGE else ""
