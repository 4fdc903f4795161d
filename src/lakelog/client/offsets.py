"""Offsets of partitions by time (ListOffsets), with their start and end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakelog.client.cluster import Cluster
from lakelog.client.errors import check
from lakelog.client.leaders import TopicPartition, ask_leaders
from lakelog.protocol.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

__all__ = ["EARLIEST", "LATEST", "MAX_TIMESTAMP", "OffsetAt", "TopicPartition", "list_offsets"]

LATEST = -1
"""The offset after the last readable record."""
EARLIEST = -2
"""The start of the log."""
MAX_TIMESTAMP = -3
"""The record with the largest timestamp."""


@dataclass(slots=True, frozen=True)
class OffsetAt:
    """The result for one partition.

    offset: -1 if no record is at or after the time. timestamp: that of the record, in milliseconds
    since the epoch; -1 for `LATEST` and `EARLIEST`. leader_epoch: that of the record, or for
    `LATEST` the leader's own; -1 if the broker does not know it.
    """

    offset: int
    timestamp: int
    leader_epoch: int = -1


def list_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], *, read_committed: bool = False
) -> dict[TopicPartition, OffsetAt]:
    """Return the first offset at or after each timestamp.

    wanted: milliseconds since the epoch, or a constant of this module. The call follows changes of
    leaders. Raises `TopicNotFoundError`, `PartitionNotFoundError`.
    """

    def ask(
        node: int, keys: Sequence[TopicPartition], found: dict[TopicPartition, OffsetAt]
    ) -> None:
        times = {key: wanted[key] for key in keys}
        request = _request(times, int(read_committed), int(cluster.request_timeout_s * 1000))
        _collect(cluster.ask(node, request, ListOffsetsResponse), found)

    return ask_leaders(cluster, wanted, ask)


def _request(
    times: Mapping[TopicPartition, int], isolation_level: int, timeout_ms: int
) -> ListOffsetsRequest:
    topics: dict[str, ListOffsetsTopic] = {}
    for (topic, partition), time in times.items():
        row = topics.setdefault(topic, ListOffsetsTopic(name=topic))
        row.partitions.append(ListOffsetsPartition(partition_index=partition, timestamp=time))
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=list(topics.values()),
        timeout_ms=timeout_ms,
    )


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
