"""Snapshot files of one log: which is used, and which are removed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from doubles.disk import MemoryDisk
from lakelog.storage.names import SNAPSHOT, file_name
from lakelog.storage.producers.snapshots import ProducerSnapshots
from lakelog.storage.producers.state import ProducerEntry, ProducerStateTable
from storage_kit import DATA, ManualClock


def written(*offsets: int) -> tuple[MemoryDisk, ProducerSnapshots]:
    """Snapshots of one producer each, whose id is the offset."""
    disk = MemoryDisk(ManualClock())
    disk.make_dirs(DATA)
    snapshots = ProducerSnapshots(disk, DATA)
    for offset in offsets:
        table = ProducerStateTable()
        table.load({offset: ProducerEntry(0)})
        table.end_offset = offset
        snapshots.write(table)
    return disk, snapshots


def test_the_newest_snapshot_within_the_log_is_used() -> None:
    _, snapshots = written(5, 10, 15)
    offset, entries = snapshots.newest(14)
    assert (offset, list(entries)) == (10, [10])
    assert snapshots.newest(4) == (-1, {})


def test_a_damaged_one_is_removed_and_an_older_one_used() -> None:
    disk, snapshots = written(5, 10)
    disk.write_atomic(DATA / file_name(10, SNAPSHOT), b"damaged")
    assert snapshots.newest(99)[0] == 5
    assert disk.list(DATA) == [file_name(5, SNAPSHOT)]


@pytest.mark.parametrize(
    ("remove", "left"),
    [
        (lambda snapshots: snapshots.remove_beyond(10), [5, 10]),
        (lambda snapshots: snapshots.remove_before(10), [10, 15]),
        (lambda snapshots: snapshots.remove_at(10), [5, 15]),
        (lambda snapshots: snapshots.remove_at(15), [5, 10, 15]),
        (lambda snapshots: snapshots.prune({5}), [5, 15]),
    ],
)
def test_snapshots_are_removed_with_their_files(
    remove: Callable[[ProducerSnapshots], None], left: list[int]
) -> None:
    disk, snapshots = written(5, 10, 15)
    remove(snapshots)
    assert snapshots.offsets == left
    assert disk.list(DATA) == [file_name(offset, SNAPSHOT) for offset in left]


def test_none_is_written_below_another() -> None:
    _, snapshots = written(5)
    table = ProducerStateTable()
    table.end_offset = 4
    with pytest.raises(AssertionError):
        snapshots.write(table)


def test_a_copy_does_not_see_later_changes() -> None:
    _, snapshots = written(5, 10)
    copy = snapshots.copy()
    snapshots.remove_beyond(5)
    assert copy.offsets == [5, 10]
    assert copy.newest(99)[0] == 5, "its file is gone"
