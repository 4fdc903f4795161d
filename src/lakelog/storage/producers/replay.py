"""Replay of a log's batches into its producer state, after a start or a truncation.

The aborted transactions of a segment follow from it: its transaction index, which most segments
lack.

For a truncation a thread replays the log up to the new end, on copies of the segments, while the
loop continues to use its own. The loop then cuts the log and applies the state. Until then the log
may grow: no append changes the state at an earlier offset.

Source: `LogSegment.recover` and `UnifiedLog.rebuildProducerState` of
`org.apache.kafka.storage.internals.log`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from lakelog.records.batch import BatchHeader, CorruptRecord
from lakelog.records.control import EndTransactionMarker, read_marker
from lakelog.storage.errors import CorruptLog
from lakelog.storage.files import LOG, TXN_INDEX, remove_if_exists, write_aside
from lakelog.storage.preparation import CopiesJob, DetachedSegment
from lakelog.storage.producers.snapshots import ProducerSnapshots
from lakelog.storage.producers.state import ProducerEntry, ProducerStateTable
from lakelog.storage.segments.scan import scan_headers
from lakelog.storage.segments.segment import Segment
from lakelog.storage.segments.segment_list import SegmentList
from lakelog.storage.segments.txn_index import AbortedTransaction, TxnIndex, encode_aborted


def rebuild(
    table: ProducerStateTable,
    snapshots: ProducerSnapshots,
    segments: SegmentList,
    end_offset: int,
    reindexed: Collection[Segment],
) -> None:
    """Compute the state at `end_offset`, the log's end, from the newest snapshot and later batches.

    The transaction indexes of `reindexed` segments are rebuilt on the way. Raises `CorruptLog` or
    `OSError`.
    """
    before = min((segment.base_offset for segment in reindexed), default=end_offset)
    start, entries = snapshots.newest(before)
    assert start <= before, "a snapshot of later records has lost how they began"
    table.load(entries)
    for segment in segments:
        aborted = replay(table, segment, start)
        if segment in reindexed:
            replace_aborted(segment, aborted)
    table.end_offset = end_offset
    segments.note_aborted()


def replay(table: ProducerStateTable, segment: Segment, start: int) -> list[AbortedTransaction]:
    """Apply the batches of a segment from offset `start` on; return which transactions it aborts.

    Raises `CorruptLog` or `OSError`.
    """
    aborted: list[AbortedTransaction] = []
    if segment.next_offset <= start or not segment.size:
        return aborted
    position = segment.position_of(start) if start > segment.base_offset else 0
    for at, header in scan_headers(segment.open().file, position, segment.size):
        if header.producer_id < 0 or header.base_offset < start:
            continue
        if not header.is_control:
            table.update(header, header.base_offset)
            continue
        marker = _marker(segment, at, header)
        if marker is None:
            continue
        ended = table.ending(header.producer_id, header.base_offset)
        if ended is not None and not marker.commit:
            aborted.append(ended)
        table.end_transaction(header, marker)
    return aborted


def _marker(segment: Segment, position: int, header: BatchHeader) -> EndTransactionMarker | None:
    try:
        return read_marker(segment.open().file.read_at(position, header.size), header)
    except CorruptRecord as error:
        raise CorruptLog(segment.path(LOG), position, str(error)) from error


class Truncation(NamedTuple):
    """The end of a log to come, and the segments that it will have."""

    end_offset: int
    generation: int
    """`SegmentList.generation`: an earlier truncation has changed the log."""
    kept: Sequence[Segment]
    is_reindexed: bool
    """Whether the transaction index of the last kept segment has to be rebuilt."""

    @classmethod
    def of(cls, segments: SegmentList, keep: int, end_offset: int) -> Truncation:
        """Return the truncation that keeps the first `keep` segments up to `end_offset`."""
        kept = segments[:keep]
        is_reindexed = bool(kept) and kept[-1].txn_index is not None
        return cls(end_offset, segments.generation, kept, is_reindexed)


class TruncatedState(NamedTuple):
    """The producers at the end of a truncation, and the aborted transactions of its last segment.

    The list is empty unless the truncation `is_reindexed`.
    """

    truncation: Truncation
    entries: dict[int, ProducerEntry]
    aborted: list[AbortedTransaction]
    last: Segment | None
    """A copy of the last kept segment as the truncation leaves it, if one is kept."""
    error: CorruptLog | None
    """Why the log cannot be replayed; the state is empty then."""


class TruncationJob(CopiesJob):
    """Replays a log up to the end of a truncation, from the newest snapshot before it."""

    def __init__(
        self,
        truncation: Truncation,
        segments: SegmentList,
        snapshots: ProducerSnapshots,
        apply: Callable[[TruncatedState], object],
    ) -> None:
        """apply: called by `finish` with the result."""
        end, generation = truncation.end_offset, truncation.generation
        super().__init__(snapshots.folder, end, (snapshots.folder, generation, end))
        self._truncation = truncation
        self._segments = segments
        self._snapshots = snapshots.copy()
        self._copies = [DetachedSegment(segment, opens=True) for segment in truncation.kept]
        self._apply = apply
        self._state: TruncatedState | None = None

    def _close(self) -> None:
        for copy in self._copies:
            copy.close()

    def _work(self) -> None:
        truncation, copies = self._truncation, self._copies
        before, last = truncation.end_offset, copies[-1] if copies else None
        if last is not None:
            last.forget_from(truncation.end_offset)
            if truncation.is_reindexed:
                before = last.base_offset
        start, entries = self._snapshots.newest(before)
        table = ProducerStateTable()
        table.load(entries)
        aborted: list[AbortedTransaction] = []
        for copy in copies:
            aborted = replay(table, copy, start)
            copy.close()
        if not truncation.is_reindexed:
            aborted = []
        self._state = TruncatedState(truncation, table.entries, aborted, last, None)

    def finish(self) -> None:
        """Hand over the result; called once, by the owner."""
        kept = self._truncation.kept
        if self._missing is not None and self._segments[: len(kept)] == kept:
            self.failure = self._missing  # otherwise retention has removed the file
        if self._error is not None:
            self._state = TruncatedState(self._truncation, {}, [], None, self._error)
        if self._state is not None:
            self._apply(self._state)


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
