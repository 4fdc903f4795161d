"""The transaction index of a segment: entries are kept with their markers, or cut off."""

from __future__ import annotations

from lakelog.records import crc
from lakelog.storage.files import TXN_INDEX
from lakelog.storage.segments.aborted import (
    aborted_of,
    checksum_of_aborted,
    cut_aborted,
    keep_aborted,
    replace_aborted,
    write_aborted,
)
from lakelog.storage.segments.segment import Segment
from lakelog.storage.segments.txn_index import AbortedTransaction, TxnIndex, encode_aborted
from storage_kit import append, make_batch, memory_store

FIRST = AbortedTransaction(7, 0, 3, 0)
SECOND = AbortedTransaction(8, 4, 6, 4)


def filled() -> Segment:
    """A segment with the offsets 0 to 9."""
    log = memory_store().create()
    append(log, make_batch(10))
    return log.segments.active


def stored(segment: Segment) -> bytes | None:
    path = segment.path(TXN_INDEX)
    if not segment.disk.exists(path):
        return None
    file = segment.disk.open(path)
    try:
        return file.read_at(0, file.size())
    finally:
        file.close()


def test_an_entry_is_written_before_its_marker_and_counts_after_it() -> None:
    segment = filled()
    write_aborted(segment, FIRST)
    assert aborted_of(segment) == []
    assert stored(segment) == encode_aborted([FIRST])
    keep_aborted(segment, FIRST)
    assert aborted_of(segment) == [FIRST]


def test_the_entry_of_a_marker_that_was_not_appended_is_cut_off() -> None:
    segment = filled()
    cut_aborted(segment)
    assert stored(segment) is None, "nothing was aborted here"
    write_aborted(segment, FIRST)
    keep_aborted(segment, FIRST)
    write_aborted(segment, SECOND)
    cut_aborted(segment)
    assert stored(segment) == encode_aborted([FIRST])


def test_entries_are_read_from_their_file_once() -> None:
    segment = filled()
    replace_aborted(segment, [FIRST, SECOND])
    segment.txn_index = TxnIndex(None)
    assert aborted_of(segment) == [FIRST, SECOND]
    assert checksum_of_aborted(segment) == crc.crc32c(encode_aborted([FIRST, SECOND]))
    segment.disk.remove(segment.path(TXN_INDEX))
    assert aborted_of(segment) == [FIRST, SECOND]


def test_a_damaged_file_has_no_entries() -> None:
    segment = filled()
    replace_aborted(segment, [FIRST._replace(last_offset=10)])
    segment.txn_index = TxnIndex(None)
    assert aborted_of(segment) is None, "no marker is at the end of the segment"


def test_a_segment_without_entries_has_no_file() -> None:
    segment = filled()
    replace_aborted(segment, [])
    assert stored(segment) is None
    replace_aborted(segment, [FIRST])
    assert stored(segment) == encode_aborted([FIRST])
    replace_aborted(segment, [])
    assert segment.txn_index is None
    assert stored(segment) is None
