from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lakelog.tables.topic.ranges import OffsetRange, limit_offsets, ranges_between, split_ranges

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
