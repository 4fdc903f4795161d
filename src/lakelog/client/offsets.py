"""Offsets by time: where a partition begins and ends, and where a moment lies in it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from lakelog.client.cluster import Cluster
from lakelog.client.errors import ConnectionLostError, UnreachableError, check
from lakelog.protocol.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

TopicPartition = tuple[str, int]

LATEST = -1
"""The end: one past the last record that may be read."""
EARLIEST = -2
MAX_TIMESTAMP = -3
"""The record with the largest timestamp."""


@dataclass(slots=True, frozen=True)
class OffsetAt:
    """`offset` is -1 if no record is that new; `timestamp` is -1 where none was asked for."""

    offset: int
    timestamp: int
    leader_epoch: int = -1


def list_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], *, read_committed: bool = False
) -> dict[TopicPartition, OffsetAt]:
    """The first offset at or after each timestamp (milliseconds), or a constant of this module.

    Leaders are followed as they change. Raises `TopicNotFoundError`, `PartitionNotFoundError`.
    """
    found: dict[TopicPartition, OffsetAt] = {}

    def work() -> dict[TopicPartition, OffsetAt]:
        left = {key: time for key, time in wanted.items() if key not in found}
        try:
            _ask_leaders(cluster, left, found, int(read_committed))
        except Exception:
            cluster.refresh({topic for topic, _ in left})
            raise
        return found

    return cluster.retrying(work)


def _ask_leaders(
    cluster: Cluster,
    left: Mapping[TopicPartition, int],
    found: dict[TopicPartition, OffsetAt],
    isolation_level: int,
) -> None:
    by_node: dict[int, list[TopicPartition]] = defaultdict(list)
    for topic, partition in left:
        by_node[cluster.leader(topic, partition).node_id].append((topic, partition))
    for node, keys in by_node.items():
        topics: dict[str, ListOffsetsTopic] = {}
        for topic, partition in keys:
            row = topics.setdefault(topic, ListOffsetsTopic(name=topic))
            row.partitions.append(
                ListOffsetsPartition(partition_index=partition, timestamp=left[topic, partition])
            )
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation_level,
            topics=list(topics.values()),
            timeout_ms=int(cluster.request_timeout_s * 1000),
        )
        try:
            response = cluster.ask(node, request, ListOffsetsResponse)
        except ConnectionLostError as error:
            raise UnreachableError(error.message) from error
        _collect(response, found)


def _collect(response: ListOffsetsResponse, found: dict[TopicPartition, OffsetAt]) -> None:
    failed = 0
    where = ""
    for topic in response.topics:
        for row in topic.partitions:
            if row.error_code:
                failed, where = row.error_code, f"{topic.name}-{row.partition_index}"
                continue
            offset = OffsetAt(row.offset, row.timestamp, row.leader_epoch)
            found[topic.name, row.partition_index] = offset
    check(failed, where)
