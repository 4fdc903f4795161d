"""The two index files of a segment."""

from __future__ import annotations

import errno

import pytest

from doubles.disk import MemoryDisk
from lakelog.storage.indexes.index_files import IndexFiles
from lakelog.storage.indexes.segment_index import ENTRY_SIZE, TIME_ENTRY_SIZE, SegmentIndex
from lakelog.storage.names import INDEX, TIME_INDEX, file_name
from storage_kit import DATA, ManualClock

OFFSETS, TIMES = DATA / file_name(70, INDEX), DATA / file_name(70, TIME_INDEX)


def new_files() -> tuple[MemoryDisk, IndexFiles]:
    disk = MemoryDisk(ManualClock())
    disk.make_dirs(DATA)
    return disk, IndexFiles(disk, DATA, 70)


def filled() -> SegmentIndex:
    index = SegmentIndex()
    for offset, position, time in ((9, 100, 50), (19, 200, 50), (29, 300, 80)):
        index.add(offset, position)
        index.add_time(time, offset)
    return index


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
