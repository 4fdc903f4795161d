"""The file of a segment's aborted transactions."""

from __future__ import annotations

import pytest

from counted_work import lines_run
from doubles.disk import MemoryDisk
from lakelog.records.crc import crc32c
from lakelog.storage.segments.txn_index import (
    ENTRY_SIZE,
    AbortedTransaction,
    TxnIndex,
    decode_aborted,
    encode_aborted,
)
from storage_kit import DATA, ManualClock

FIRST = AbortedTransaction(7, 0, 4, 0)
SECOND = AbortedTransaction(8, 6, 9, 5)


def test_an_entry_whose_marker_was_not_appended_is_cut_off() -> None:
    disk = MemoryDisk(ManualClock())
    disk.make_dirs(DATA)
    path = DATA / "0.txnindex"
    index = TxnIndex([])
    for entry in (FIRST, SECOND):
        index.write(disk, path, entry)
        index.keep(entry)
    index.write(disk, path, AbortedTransaction(9, 11, 12, 10))
    assert disk.size(path) == 3 * ENTRY_SIZE
    index.cut(disk, path)
    assert disk.open(path).read_at(0, disk.size(path)) == encode_aborted([FIRST, SECOND])
    steps = disk.steps
    index.cut(disk, path)
    assert disk.steps == steps, "the file has no more than the entries"


@pytest.mark.parametrize(("first", "is_sound"), [(3, True), (4, False), (5, False), (-1, False)])
def test_a_transaction_begins_before_its_marker(first: int, is_sound: bool) -> None:
    entry = AbortedTransaction(7, first, 4, 0)
    assert decode_aborted(encode_aborted([entry]), 0, 10) == ([entry] if is_sound else None)


def test_the_checksum_of_a_file_is_continued_with_each_entry() -> None:
    disk = MemoryDisk(ManualClock())
    disk.make_dirs(DATA)
    path = DATA / "0.txnindex"
    index = TxnIndex([])
    first, *others = (AbortedTransaction(7, 2 * n, 2 * n + 1, 2 * n + 2) for n in range(300))
    index.write(disk, path, first)
    index.keep(first)
    index.checksum(disk, path)
    for entry in others:
        index.write(disk, path, entry)
        index.keep(entry)
    told: list[int] = []
    assert lines_run(lambda: told.append(index.checksum(disk, path))) < 10
    assert told == [crc32c(disk.read(path))]
