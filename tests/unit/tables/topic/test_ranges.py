from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from lakelog.tables.topic.errors import DataLossError
from lakelog.tables.topic.offsets import TopicPartition
from lakelog.tables.topic.ranges import (
    OffsetRange,
    limit_offsets,
    offsets_in,
    ranges_between,
    split_ranges,
)

sizes = st.lists(st.integers(0, 1000), min_size=1, max_size=6)


def ranges_of(lengths: list[int]) -> list[OffsetRange]:
    return [OffsetRange("t", p, 10, 10 + size) for p, size in enumerate(lengths) if size]


def test_ranges_lie_between_the_two_points() -> None:
    start = {"t": {0: 5, 1: 7}}
    end = {"t": {0: 8, 1: 7, 2: 3}}

    assert ranges_between(start, end) == [OffsetRange("t", 0, 5, 8), OffsetRange("t", 2, 0, 3)]


@given(sizes, st.integers(1, 20))
def test_splitting_keeps_every_offset_once(lengths: list[int], wanted: int) -> None:
    whole = ranges_of(lengths)

    parts = split_ranges(whole, wanted)

    def offsets(ranges: list[OffsetRange]) -> list[tuple[int, int]]:
        return [(each.partition, o) for each in ranges for o in range(each.start, each.end)]

    assert offsets(parts) == offsets(whole)
    assert len(parts) >= min(wanted, sum(lengths)) or not whole


@given(sizes, st.integers(1, 300), st.none() | st.integers(1, 20))
def test_no_range_is_larger_than_the_limit(
    lengths: list[int], most: int, wanted: int | None
) -> None:
    whole = ranges_of(lengths)

    parts = split_ranges(whole, wanted, offsets_max=most)

    assert sum(each.size for each in parts) == sum(each.size for each in whole)
    assert all(0 < each.size <= most for each in parts)
    if wanted is None:
        assert len(parts) == sum(-(-each.size // most) for each in whole), "as few as possible"


def test_the_largest_range_is_split_most() -> None:
    parts = split_ranges(ranges_of([900, 100]), 5)

    assert [each.size for each in parts if each.partition == 0] == [225] * 4
    assert [each.size for each in parts if each.partition == 1] == [100]


@given(sizes, st.integers(1, 500))
def test_a_limit_is_met_closely_and_starves_no_partition(lengths: list[int], most: int) -> None:
    start = {"t": dict.fromkeys(range(len(lengths)), 10)}
    latest = {"t": {p: 10 + size for p, size in enumerate(lengths)}}

    limited = limit_offsets(start, latest, most)

    taken = [limited["t"][p] - 10 for p in range(len(lengths))]
    assert sum(taken) < most + len(lengths)
    assert sum(taken) >= min(most, sum(lengths))
    assert all(0 < got <= size for got, size in zip(taken, lengths, strict=True) if size)


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
