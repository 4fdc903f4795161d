"""Entries of the two sparse indexes: searches, cuts, and their files."""

from __future__ import annotations

import struct

import pytest

from lakelog.storage.indexes.segment_index import ENTRY_SIZE, TIME_ENTRY_SIZE, SegmentIndex

SIZE = 1000


def filled() -> SegmentIndex:
    index = SegmentIndex()
    for offset, position, time in ((9, 100, 50), (19, 200, 50), (29, 300, 80)):
        index.add(offset, position)
        index.add_time(time, offset)
    return index


def test_a_floor_is_the_last_entry_at_or_before() -> None:
    index = filled()
    assert [index.floor(offset) for offset in (8, 9, 18, 29, 99)] == [-1, 0, 0, 2, 2]
    assert [index.floor_position(at) for at in (99, 100, 250, 300)] == [-1, 0, 1, 2]


def test_a_time_is_found_by_an_entry_below_it() -> None:
    assert [filled().floor_time(time) for time in (50, 51, 80, 81)] == [-1, 0, 0, 1]


def test_only_a_greater_time_gets_an_entry() -> None:
    index = filled()
    assert list(index.times) == [50, 80]
    assert list(index.time_offsets) == [9, 29]
    assert index.last_time_position == 300


def test_a_cut_drops_entries_and_counts_them_as_unwritten() -> None:
    index = filled()
    index.written, index.written_times = 3, 2
    index.truncate(19)
    assert (list(index.offsets), list(index.times)) == ([9], [50])
    assert (index.written, index.written_times) == (1, 1)


def test_files_are_read_as_they_were_written() -> None:
    index = filled()
    offsets, times = index.encode_offsets(0), index.encode_times(0)
    assert offsets == struct.pack(">6i", 9, 100, 19, 200, 29, 300)
    assert times == struct.pack(">qiqi", 50, 9, 80, 29)
    read = SegmentIndex.decode(offsets + b"half", times + b"an entry")
    assert read.encode_offsets(1) == offsets[ENTRY_SIZE:]
    assert read.encode_times(1) == times[TIME_ENTRY_SIZE:]
    assert (read.written, read.written_times, read.trusted) == (3, 2, False)
    assert read.is_ordered(SIZE)


@pytest.mark.parametrize(
    ("offsets", "times"),
    [
        ((9, 100, 9, 200), ()),
        ((9, 100, 19, 100), ()),
        ((-1, 100), ()),
        ((9, 0), ()),
        ((9, SIZE), ()),
        ((), (50, 9, 50, 19)),
        ((), (50, 19, 60, 9)),
        ((), (-1, 9)),
        ((), (50, -1)),
    ],
)
def test_numbers_that_no_log_has_are_out_of_order(
    offsets: tuple[int, ...], times: tuple[int, ...]
) -> None:
    read = SegmentIndex.decode(
        struct.pack(f">{len(offsets)}i", *offsets),
        struct.pack(">" + "qi" * (len(times) // 2), *times),
    )
    assert not read.is_ordered(SIZE)


def test_the_room_left_is_that_of_the_fuller_file() -> None:
    index = filled()
    assert index.entries_left(5 * ENTRY_SIZE) == 5 * ENTRY_SIZE // TIME_ENTRY_SIZE - 1 - 2
    assert index.entries_left(1 << 20) == (1 << 20) // TIME_ENTRY_SIZE - 1 - 2
