"""Estimates the size of records from samples, to limit batches in bytes.

Brokers state positions in offsets only. The estimate reads the first records of some partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from lakelog.tables.topic.errors import DataLossError
from lakelog.tables.topic.offsets import TopicPartition
from lakelog.tables.topic.ranges import OffsetRange

_SAMPLED_MAX = 16
"""Partitions whose records are sampled."""
_UNKNOWN_BYTES = 1024.0
"""For records that are lost, or that are in the topic's table only."""


class SampleSource(Protocol):
    """The part of `TopicClient` that reads samples."""

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the start offset of each partition."""
        ...

    def bytes_per_offset(self, topic: str, partition: int, start: int, end: int) -> float:
        """Estimate the bytes of log per offset from the first records of a range."""
        ...


def offsets_in(size: int, ranges: Sequence[OffsetRange], source: SampleSource) -> int:
    """Return how many offsets of the ranges take about `size` bytes of log, at least 1.

    Raises `KafkaError`, and `TopicMissingError` for a topic that was deleted meanwhile.
    """
    assert ranges, "there is nothing to sample"
    largest = sorted(ranges, key=lambda each: each.size, reverse=True)[:_SAMPLED_MAX]
    first = source.earliest([(each.topic, each.partition) for each in largest])
    taken = sum(
        each.size * _bytes_per_offset(source, each, first[each.topic, each.partition])
        for each in largest
    )
    average = taken / sum(each.size for each in largest)
    return max(1, int(size / max(average, 1.0)))


def _bytes_per_offset(source: SampleSource, each: OffsetRange, first: int) -> float:
    """Return the mean of a sample; a guess for records that are not in the log any more."""
    start = min(max(each.start, first), each.end)
    try:
        return source.bytes_per_offset(each.topic, each.partition, start, each.end)
    except DataLossError:
        return _UNKNOWN_BYTES
