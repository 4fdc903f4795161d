"""The aborted transactions of one segment: its transaction index, which most segments lack.

All functions raise `OSError`.
"""

from __future__ import annotations

from pathlib import Path

from lakelog.storage.files import TXN_INDEX, remove_if_exists, write_aside
from lakelog.storage.segments.segment import Segment
from lakelog.storage.segments.txn_index import AbortedTransaction, TxnIndex, encode_aborted


def aborted_of(segment: Segment) -> list[AbortedTransaction] | None:
    """Return the transactions whose abort markers are in it; `None` for a damaged index."""
    index = segment.txn_index
    if index is None:
        return []
    if index.entries is None:
        path = segment.path(TXN_INDEX)
        index.read(segment.disk, path, segment.base_offset, segment.next_offset)
    return index.entries


def checksum_of_aborted(segment: Segment) -> int:
    """Return the CRC-32C of its transaction index, which it must have."""
    assert segment.txn_index is not None
    return segment.txn_index.checksum(segment.disk, segment.path(TXN_INDEX))


def write_aborted(segment: Segment, entry: AbortedTransaction) -> None:
    """Write an entry to the index before its marker is appended.

    Then call `keep_aborted` or, if the append fails, `cut_aborted`.
    """
    if segment.txn_index is None:
        # Its file may hold entries of an earlier attempt; `TxnIndex.write` truncates them.
        segment.txn_index = TxnIndex([])
    segment.txn_index.write(segment.disk, segment.path(TXN_INDEX), entry)


def keep_aborted(segment: Segment, entry: AbortedTransaction) -> None:
    """Keep the entry: its marker has been appended."""
    assert segment.txn_index is not None
    segment.txn_index.keep(entry)


def cut_aborted(segment: Segment) -> None:
    """Cut off the entry of a marker that could not be appended."""
    if segment.txn_index is not None:
        segment.txn_index.cut(segment.disk, segment.path(TXN_INDEX))


def replace_aborted(segment: Segment, entries: list[AbortedTransaction]) -> None:
    """Replace the transaction index; a segment without entries has no file."""
    if entries:
        aside = write_aside(segment.disk, segment.path(TXN_INDEX), encode_aborted(entries))
        apply_aborted(segment, entries, aside)
    elif segment.txn_index is not None:
        apply_aborted(segment, entries, None)


def apply_aborted(segment: Segment, entries: list[AbortedTransaction], aside: Path | None) -> None:
    """Replace the transaction index by entries that were written to the file `aside`."""
    if aside is None:
        remove_if_exists(segment.disk, segment.path(TXN_INDEX))
        segment.txn_index = None
    else:
        segment.disk.rename(aside, segment.path(TXN_INDEX))
        segment.txn_index = TxnIndex(entries)
