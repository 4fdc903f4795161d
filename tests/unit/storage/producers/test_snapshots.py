"""Snapshot files of one log: which is used, and which are removed."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from doubles.disk import MemoryDisk
from lakelog.records import crc
from lakelog.records.control import NO_DECISION
from lakelog.storage.files import SNAPSHOT, file_name
from lakelog.storage.producers.snapshots import (
    MalformedSnapshot,
    ProducerSnapshots,
    decode_snapshot,
    encode_snapshot,
)
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


_HEAD_SIZE = 2 + 4 + 4
_ROW = struct.Struct(">qhiqiqiq")


def test_a_producer_without_batches_has_the_values_that_kafka_writes() -> None:
    """`ProducerStateEntry` returns -1, -1 and 0 for the last batch that it does not have."""
    entry = ProducerEntry(epoch=4)
    entry.last_timestamp = 17
    data = encode_snapshot({9: entry})
    assert _ROW.unpack_from(data, _HEAD_SIZE) == (
        *(9, 4, -1, -1, 0, 17, entry.coordinator_epoch, entry.txn_first_offset),
    )
    assert not decode_snapshot(data)[9].batches


def test_numbers_of_decisions_follow_the_rows_that_kafka_reads() -> None:
    numbered, plain = ProducerEntry(epoch=4), ProducerEntry(epoch=1)
    numbered.coordinator_epoch, numbered.decision = 5, 1 << 40
    data = encode_snapshot({9: numbered, 10: plain})
    assert data[_HEAD_SIZE + 2 * _ROW.size :] == struct.pack(">qq", 9, 1 << 40)
    found = decode_snapshot(data)
    assert (found[9].decision, found[10].decision) == (1 << 40, NO_DECISION)


@pytest.mark.parametrize("tail", [b"\0", struct.pack(">qq", 10, 0)], ids=["torn", "unknown"])
def test_a_number_that_cannot_be_spoils_the_snapshot(tail: bytes) -> None:
    body = encode_snapshot({9: ProducerEntry(epoch=4)})[6:] + tail
    with pytest.raises(MalformedSnapshot):
        decode_snapshot(struct.pack(">hI", 1, crc.crc32c(body)) + body)
