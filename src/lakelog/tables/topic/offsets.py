"""Offsets of many partitions, in memory and as the JSON of streaming checkpoints.

The JSON is that of the official Kafka connector, `{"topic": {"partition": offset}}`: a query can
start from a checkpoint that `format("kafka")` wrote, and return to it. Topic ids and leader epochs
are stored in the name of an additional topic without partitions, `"name@id@0:5,1:7": {}`. A topic's
name cannot contain `@`, and the official connector ignores a topic without partitions. The id
distinguishes a topic from its successor of the same name. The epochs show that a log lost its tail
and grew again (`find_divergences`): such a log looks complete, but some offsets belong to other
records now. Older checkpoints have `"name@id": {}`, without epochs.

To limit batches in bytes, the size of records is estimated from samples: brokers state positions in
offsets only. The estimate reads the first records of some partitions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Protocol

from lakelog.client.offsets import EpochEnd
from lakelog.tables.topic.errors import DataLossError

ABOUT = "@"
"""The name of an entry about the source itself, in offsets that it reports to listeners."""
LATEST_OFFSET = -1
EARLIEST_OFFSET = -2

Offsets = dict[str, dict[int, int]]
"""Topic to partition to offset (the next one to read)."""

Epochs = dict[str, dict[int, int]]
"""Topic to partition to leader epoch: no record below the partition's offset has a later epoch."""

TimestampsByPartition = dict[str, dict[int, int]]
"""Topic to partition to milliseconds since the epoch."""

TopicPartition = tuple[str, int]


@dataclass(slots=True)
class StreamOffset:
    """A point in a stream: offsets, the ids of the topics they belong to, and leader epochs.

    Ids and epochs may be missing. `to_json` keeps epochs only of topics that have an id.
    """

    offsets: Offsets = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)
    epochs: Epochs = field(default_factory=dict)

    def epoch_of(self, key: TopicPartition) -> int | None:
        """Return the leader epoch of a partition's offset, or `None` if it is unknown (KIP-320)."""
        return self.epochs.get(key[0], {}).get(key[1])

    def is_of(self, topic: str, topic_id: str) -> bool:
        """Return whether these may be offsets of the topic with that id.

        Offsets without ids come from checkpoints of the official connector and match any topic.
        """
        return not topic_id or self.topic_ids.get(topic) in (None, "", topic_id)

    def to_json(self) -> dict[str, dict[str, int]]:
        """Return an ordered value: Spark compares points by their text."""
        entries: dict[str, dict[str, int]] = {
            topic: {str(partition): offset for partition, offset in sorted(partitions.items())}
            for topic, partitions in self.offsets.items()
        }
        entries.update({self._identity(topic): {} for topic in self.topic_ids})
        return dict(sorted(entries.items()))

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> StreamOffset:
        """Return the point of a checkpoint. Raises `ValueError` for another shape."""
        point = cls(_checked({name: inner for name, inner in value.items() if "@" not in name}))
        for name in value:
            if "@" in name and name != ABOUT:
                topic, topic_id, epochs = (name + "@").split("@")[:3]
                point.topic_ids[topic] = topic_id
                if epochs:
                    point.epochs[topic] = _parse_epochs(epochs, name)
        return point

    def _identity(self, topic: str) -> str:
        epochs = sorted(self.epochs.get(topic, {}).items())
        text = ",".join(f"{partition}:{epoch}" for partition, epoch in epochs)
        return f"{topic}@{self.topic_ids[topic]}" + (f"@{text}" if text else "")


_OFFSETS = '{"topic": {"0": 23, "1": -2}}'


def parse_offsets(text: str) -> Offsets:
    """Parse offsets or timestamps by topic and partition. Raises `ValueError`.

    Timestamps are in milliseconds since the epoch.
    """
    return _checked(_object(text, _OFFSETS))


def parse_point(text: str) -> StreamOffset:
    """Parse the offsets of a checkpoint or of a query's progress; ids and epochs are optional.

    Raises `ValueError`.
    """
    return StreamOffset.from_json(_object(text, _OFFSETS))


def parse_assign(text: str) -> tuple[TopicPartition, ...]:
    """Parse `{"topic": [0, 1]}` into (topic, partition) pairs. Raises `ValueError`."""
    assigned: list[TopicPartition] = []
    for topic, partitions in _object(text, '{"topic": [0, 1]}').items():
        if not isinstance(partitions, list) or not all(_is_int(p) and p >= 0 for p in partitions):
            raise ValueError(f"the partitions of {topic!r} must be a list of whole numbers")
        assigned.extend((topic, partition) for partition in partitions)
    return tuple(dict.fromkeys(assigned))


def items(offsets: Offsets) -> Iterator[tuple[TopicPartition, int]]:
    """Yield every partition with its offset, in order."""
    for topic in sorted(offsets):
        for partition in sorted(offsets[topic]):
            yield (topic, partition), offsets[topic][partition]


def from_items(pairs: Mapping[TopicPartition, int]) -> Offsets:
    """Return the nested form of a flat mapping."""
    offsets: Offsets = {}
    for (topic, partition), offset in pairs.items():
        offsets.setdefault(topic, {})[partition] = offset
    return offsets


def _parse_epochs(text: str, name: str) -> dict[int, int]:
    epochs: dict[int, int] = {}
    for item in text.split(","):
        partition, _, epoch = item.partition(":")
        if not (partition.isdecimal() and epoch.isdecimal()):
            raise ValueError(
                f"{name!r}: expected a partition and a leader epoch such as 0:5, not {item!r}"
            )
        epochs[int(partition)] = int(epoch)
    return epochs


def _object(text: str, example: str) -> dict[str, Any]:
    """Return a JSON object that is not empty. Raises `ValueError`."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"not valid JSON ({error}): {text!r}") from None
    if not isinstance(value, dict) or not value:
        raise ValueError(f"expected JSON such as {example}, not {text!r}")
    return value


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _checked(value: Mapping[str, Any]) -> Offsets:
    offsets: Offsets = {}
    for topic, partitions in value.items():
        if not isinstance(partitions, dict):
            raise ValueError(f"the partitions of {topic!r} must be an object")
        offsets[topic] = {}
        for partition, offset in partitions.items():
            if not partition.isdecimal() or not _is_int(offset):
                raise ValueError(
                    f"{topic!r}: expected a partition and its offset, not {partition!r}: {offset!r}"
                )
            offsets[topic][int(partition)] = offset
    return offsets


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


class EpochSource(Protocol):
    """The part of `TopicClient` that sends OffsetForLeaderEpoch."""

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, EpochEnd]:
        """Return where the given leader epoch of each partition ends in the present log.

        Raises `KafkaError` if a leader does not answer.
        """
        ...


@dataclass(frozen=True, slots=True)
class Divergence:
    """A partition whose log no longer holds the records that were read below `offset`.

    epoch: the leader epoch that was stored with `offset`. epoch_end: where it ends in the log; if
    the log lacks it, the largest epoch before it.
    """

    topic: str
    partition: int
    offset: int
    epoch: int
    epoch_end: EpochEnd

    @property
    def restart(self) -> int | None:
        """The first offset that may now belong to another record; `None` if it is unknown."""
        return None if self.epoch_end.end_offset < 0 else self.epoch_end.end_offset

    def __str__(self) -> str:
        where = f"{self.topic}-{self.partition}"
        read = f"read up to offset {self.offset} in leader epoch {self.epoch}"
        if self.restart is None:
            return f"the log of {where} was replaced: {read}, an epoch that it no longer has"
        return (
            f"the log of {where} was cut and grew again: {read}, but epoch {self.epoch_end.epoch} "
            f"ends at {self.epoch_end.end_offset}. The records from there on were lost or replaced"
        )


def find_divergences(source: EpochSource, point: StreamOffset) -> list[Divergence]:
    """Compare each offset of `point` that has a leader epoch with the log; return the divergences.

    The caller has checked that the topics have the ids in `point.topic_ids`. Raises `KafkaError` if
    a leader does not answer. Source: KIP-320.
    """
    positions = {
        key: (offset, point.epochs[key[0]][key[1]])
        for key, offset in items(point.offsets)
        if key[1] in point.epochs.get(key[0], {})
    }
    ends = source.epoch_ends({key: epoch for key, (_, epoch) in positions.items()})
    return [
        Divergence(topic, partition, offset, epoch, ends[topic, partition])
        for (topic, partition), (offset, epoch) in positions.items()
        if ends[topic, partition].end_offset < offset
    ]
