"""Offsets of partitions by time (ListOffsets), with their start and end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakelog.client.cluster import Cluster
from lakelog.client.errors import ClientError, check
from lakelog.client.leaders import TopicPartition, ask_leaders
from lakelog.protocol.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "OffsetAt",
    "TopicPartition",
    "known_offsets",
    "list_offsets",
]

LATEST = -1
"""The offset after the last readable record."""
EARLIEST = -2
"""The start of the log."""
MAX_TIMESTAMP = -3
"""The record with the largest timestamp."""
_KNOWN_WITHIN_S = 2.0
"""Longer than a change of leaders in a healthy cluster."""


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
    return _list_into({}, cluster, wanted, read_committed=read_committed)


def known_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int]
) -> dict[TopicPartition, OffsetAt]:
    """Return what `list_offsets` returns, without the partitions whose offsets are unknown now.

    A leader may be dead, or not know its high watermark yet (OFFSET_NOT_AVAILABLE): until the
    present followers have answered a new leader, for example. Such a partition is asked for again
    for two seconds. Raises errors that are not retriable as `list_offsets` does.
    """
    found: dict[TopicPartition, OffsetAt] = {}
    with cluster.hurrying(_KNOWN_WITHIN_S):
        try:
            _list_into(found, cluster, wanted, read_committed=False)
        except ClientError as error:
            if not error.retriable:
                raise
    return found


def _list_into(
    found: dict[TopicPartition, OffsetAt],
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    *,
    read_committed: bool,
) -> dict[TopicPartition, OffsetAt]:
    """Return `found` with the offsets; it keeps other offsets when the call fails."""

    def ask(
        node: int, keys: Sequence[TopicPartition], found: dict[TopicPartition, OffsetAt]
    ) -> None:
        times = {key: wanted[key] for key in keys}
        request = _request(times, int(read_committed), int(cluster.request_timeout_s * 1000))
        _collect(cluster.ask(node, request, ListOffsetsResponse), found)

    return ask_leaders(cluster, wanted, ask, found)


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
