"""Ranges of offsets: from differences of positions, limited fairly, split into pieces. No I/O.

To limit batches in bytes, the size of records is estimated from samples: brokers state positions in
offsets only. The estimate reads the first records of some partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

from lakelog.tables.topic.errors import DataLossError
from lakelog.tables.topic.offsets import Offsets, StreamOffset, TopicPartition, from_items, items


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets of one partition from `start` up to, not including, `end`.

    leader_epoch: the latest epoch of a record in the range, as planned; a record with a later one
    shows that the log was cut and grew again. -1 if it is unknown.
    """

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str = ""
    leader_epoch: int = -1

    @property
    def size(self) -> int:
        """Number of offsets, including gaps."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


def ranges_between(start: Offsets, end: Offsets) -> list[OffsetRange]:
    """Return a range for each partition whose `end` is after its `start` (by default 0).

    The end of each range is exclusive.
    """
    ranges = []
    for (topic, partition), end_offset in items(end):
        start_offset = start.get(topic, {}).get(partition, 0)
        if end_offset > start_offset:
            ranges.append(OffsetRange(topic, partition, start_offset, end_offset))
    return ranges


def identified(ranges: list[OffsetRange], end: StreamOffset) -> list[OffsetRange]:
    """Return the ranges with the topic ids and leader epochs of the point `end`."""
    return [
        replace(
            part,
            topic_id=end.topic_ids.get(part.topic, ""),
            leader_epoch=end.epochs.get(part.topic, {}).get(part.partition, -1),
        )
        for part in ranges
    ]


def split_ranges(
    ranges: list[OffsetRange], partitions_min: int | None, *, offsets_max: int | None = None
) -> list[OffsetRange]:
    """Return ranges of at most `offsets_max` offsets, and at least `partitions_min` of them.

    If there are fewer offsets than `partitions_min`, each becomes a range. Each range is cut into
    adjacent pieces, their number in proportion to its size. The options are
    `maxRecordsPerPartition` and `minPartitions`, as in Spark's Kafka source.
    """
    if offsets_max is not None:
        ranges = [part for r in ranges for part in _cut(r, -(-r.size // offsets_max))]
    total = sum(part.size for part in ranges)
    if partitions_min is None or len(ranges) >= partitions_min or total == 0:
        return ranges
    pieces = _pieces([part.size for part in ranges], min(partitions_min, total))
    return [part for r, count in zip(ranges, pieces, strict=True) for part in _cut(r, count)]


def _pieces(sizes: list[int], count: int) -> list[int]:
    """Return how many pieces each range gets: one, then one more for the range with the largest
    pieces, until all are given."""
    counts = [1] * len(sizes)
    for _ in range(count - len(sizes)):
        largest = max(range(len(sizes)), key=lambda i: sizes[i] / counts[i])
        counts[largest] += 1
    return counts


def _cut(whole: OffsetRange, count: int) -> Iterable[OffsetRange]:
    edges = [whole.start + whole.size * i // count for i in range(count + 1)]
    for start, end in pairwise(edges):
        if end > start:
            yield replace(whole, start=start, end=end)


def limit_offsets(start: Offsets, latest: Offsets, offsets_max: int) -> Offsets:
    """Return `latest`, reduced so that about `offsets_max` offsets follow `start`.

    Each partition gets a share in proportion to its waiting offsets, and at least one, so that none
    starves. Rounding up may exceed the limit by less than one offset per partition. The
    option is `maxOffsetsPerTrigger`, as in Spark's Kafka source.
    """
    waiting = {tp: end - start.get(tp[0], {}).get(tp[1], 0) for tp, end in items(latest)}
    total = sum(size for size in waiting.values() if size > 0)
    if total <= offsets_max:
        return latest
    limited = {}
    for tp, end in items(latest):
        size = waiting[tp]
        share = -(-offsets_max * size // total) if size > 0 else size
        limited[tp] = end - size + min(share, size)
    return from_items(limited)


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
    largest = sorted(ranges, key=lambda part: part.size, reverse=True)[:_SAMPLED_MAX]
    first = source.earliest([(part.topic, part.partition) for part in largest])
    taken = sum(
        part.size * _bytes_per_offset(source, part, first[part.topic, part.partition])
        for part in largest
    )
    average = taken / sum(part.size for part in largest)
    return max(1, int(size / max(average, 1.0)))


def _bytes_per_offset(source: SampleSource, part: OffsetRange, first: int) -> float:
    """Return the mean of a sample; a guess for records that are not in the log any more."""
    start = min(max(part.start, first), part.end)
    try:
        return source.bytes_per_offset(part.topic, part.partition, start, part.end)
    except DataLossError:
        return _UNKNOWN_BYTES
