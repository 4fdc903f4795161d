from __future__ import annotations

from collections.abc import Iterable

from lakelog.tables.topic.errors import DataLossError
from lakelog.tables.topic.offsets import TopicPartition
from lakelog.tables.topic.ranges import OffsetRange
from lakelog.tables.topic.samples import offsets_in


class Samples:
    """Partitions with the bytes per offset of their records; `None` for a lost range."""

    def __init__(self, *sizes: float | None, first: int = 0) -> None:
        self.sizes = sizes
        self.first = first
        self.asked: list[tuple[int, int, int]] = []

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, self.first)

    def bytes_per_offset(self, topic: str, partition: int, start: int, end: int) -> float:
        self.asked.append((partition, start, end))
        size = self.sizes[partition]
        if size is None:
            raise DataLossError("removed meanwhile")
        return size


def ranges(*ends: int) -> list[OffsetRange]:
    return [OffsetRange("t", p, 0, end) for p, end in enumerate(ends)]


def test_the_mean_of_partitions_counts_their_offsets() -> None:
    assert offsets_in(6_000, ranges(10, 30), Samples(100, 20)) == 150
    assert offsets_in(1, ranges(10), Samples(100)) == 1, "a batch has at least one record"


def test_records_that_left_the_log_have_a_guessed_size() -> None:
    source = Samples(976, None, first=4)
    assert offsets_in(10_000, ranges(10, 10), source) == 10
    assert source.asked == [(0, 4, 10), (1, 4, 10)]


def test_only_the_largest_partitions_are_sampled() -> None:
    source = Samples(*[10] * 40)
    offsets_in(100, ranges(*range(1, 41)), source)
    assert sorted(p for p, _, _ in source.asked) == list(range(24, 40))
