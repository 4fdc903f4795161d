"""Deleting the first records of a partition."""

from __future__ import annotations

from lakelog.client.cluster import Cluster
from lakelog.client.errors import ConnectionLostError, UnreachableError, check
from lakelog.client.offsets import TopicPartition
from lakelog.protocol.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)


def delete_before(cluster: Cluster, key: TopicPartition, offset: int) -> int:
    """Asks the leader, once; returns where the partition begins then. May safely be repeated."""
    topic, partition = key
    request = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name=topic,
                partitions=[DeleteRecordsPartition(partition_index=partition, offset=offset)],
            )
        ],
        timeout_ms=int(cluster.request_timeout_s * 1000),
    )
    node = cluster.leader(topic, partition).node_id
    try:
        response = cluster.ask(node, request, DeleteRecordsResponse)
    except ConnectionLostError as error:
        raise UnreachableError(error.message) from error
    (row,) = (row for answer in response.topics for row in answer.partitions)
    check(row.error_code, f"{topic}-{partition}")
    low: int = row.low_watermark
    return low
