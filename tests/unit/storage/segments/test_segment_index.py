"""Entries of the two sparse indexes: searches, cuts, and their files."""

from __future__ import annotations

import errno
import struct

import pytest

from doubles.disk import MemoryDisk
from lakelog.storage.files import INDEX, TIME_INDEX, file_name
from lakelog.storage.segments.segment_index import (
    ENTRY_SIZE,
    TIME_ENTRY_SIZE,
    IndexFiles,
    SegmentIndex,
)
from storage_kit import DATA, ManualClock

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


OFFSETS, TIMES = DATA / file_name(70, INDEX), DATA / file_name(70, TIME_INDEX)


def new_files() -> tuple[MemoryDisk, IndexFiles]:
    disk = MemoryDisk(ManualClock())
    disk.make_dirs(DATA)
    return disk, IndexFiles(disk, DATA, 70)


def test_only_new_entries_are_written() -> None:
    disk, files = new_files()
    index = filled()
    files.append(index)
    assert (disk.size(OFFSETS), disk.size(TIMES)) == (3 * ENTRY_SIZE, 2 * TIME_ENTRY_SIZE)
    writes = disk.steps
    files.append(index)
    assert disk.steps == writes
    index.add(39, 400)
    files.append(index)
    assert (disk.size(OFFSETS), disk.size(TIMES)) == (4 * ENTRY_SIZE, 2 * TIME_ENTRY_SIZE)
    assert list(files.read().offsets) == [9, 19, 29, 39]


def test_the_last_entries_are_read_alone() -> None:
    disk, files = new_files()
    assert files.read_last() == (None, None)
    files.append(filled())
    assert files.read_last() == ((29, 300), (80, 29))
    for path in (OFFSETS, TIMES):  # a write that was cut short
        disk.write_atomic(path, disk.read(path) + b"par")
    assert files.read_last() == ((29, 300), (80, 29))
    disk.write_atomic(OFFSETS, b"")
    assert files.read_last()[0] is None


def test_missing_files_are_empty() -> None:
    _, files = new_files()
    index = files.read()
    assert (list(index.offsets), list(index.times)) == ([], [])


def test_files_are_cut_to_the_entries_of_a_truncated_index() -> None:
    disk, files = new_files()
    index = filled()
    files.append(index)
    index.truncate(19)
    files.cut(index)
    assert (disk.size(OFFSETS), disk.size(TIMES)) == (ENTRY_SIZE, TIME_ENTRY_SIZE)
    assert files.read_last() == ((9, 100), (50, 9))


def test_a_cut_creates_missing_files_and_leaves_right_ones_alone() -> None:
    disk, files = new_files()
    files.cut(SegmentIndex())
    assert (disk.size(OFFSETS), disk.size(TIMES)) == (0, 0)
    disk.fail("truncate", errno.EIO, suffix=INDEX)
    files.cut(SegmentIndex())


def test_entries_of_a_failed_write_are_written_again() -> None:
    disk, files = new_files()
    index = filled()
    disk.fail("write", errno.ENOSPC, suffix=TIME_INDEX)
    with pytest.raises(OSError, match="space"):
        files.append(index)
    files.append(index)
    assert list(files.read().times) == [50, 80]
    assert list(files.read().offsets) == [9, 19, 29]
