"""The aborted transactions of a log: selection for a read, and checks of their indexes.

A thread reads the index of a segment and compares it with the log, which takes up to a thousand
lookups of batches. A wrong index is rebuilt by replaying the log. Both use copies of the segments,
while the loop continues to use its own.

Source: `UnifiedLog.collectAbortedTransactions` of `org.apache.kafka.storage.internals.log`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import attrgetter
from pathlib import Path

from lakelog.records.batch import BatchHeader
from lakelog.storage.errors import CorruptLog
from lakelog.storage.files import TXN_INDEX, remove_if_exists, write_aside
from lakelog.storage.preparation import CopiesJob, DetachedSegment, NotReady
from lakelog.storage.producers.replay import aborted_of, apply_aborted, replay
from lakelog.storage.producers.snapshots import ProducerSnapshots
from lakelog.storage.producers.state import ProducerStateTable
from lakelog.storage.segments.scan import scan_headers
from lakelog.storage.segments.segment import Segment
from lakelog.storage.segments.segment_list import SegmentList
from lakelog.storage.segments.txn_index import AbortedTransaction, TxnIndex, encode_aborted

_COMPARED_MAX = 1000


def are_in(
    holder_of: Callable[[int], Segment | None],
    segment: Segment,
    entries: Sequence[AbortedTransaction],
) -> bool:
    """Return whether transactions end and begin in the log where the entries of a segment say.

    `holder_of` returns the segment of an offset, `None` for one before the first. Only the first
    thousand entries are compared: more would take too long. Raises `CorruptLog` or `OSError`.
    """
    for entry in entries[:_COMPARED_MAX]:
        marker = _batch_at(segment, entry.last_offset)
        if marker is None or not marker.is_control or marker.producer_id != entry.producer_id:
            return False
        if not _begins(holder_of, entry.first_offset, entry.producer_id):
            return False
        stable = entry.last_stable_offset
        if stable <= entry.last_offset and not _begins(holder_of, stable, None):
            return False
    return True


def _begins(
    holder_of: Callable[[int], Segment | None], offset: int, producer_id: int | None
) -> bool:
    """Return whether a transactional batch (of a producer) begins there, or the place is gone."""
    segment = holder_of(offset)
    if segment is None:
        return True
    header = _batch_at(segment, offset)
    return (
        header is not None
        and header.is_transactional
        and not header.is_control
        and producer_id in (None, header.producer_id)
    )


def holder(segments: Sequence[Segment], offset: int) -> Segment | None:
    """Return the segment that may have an offset; `None` for one before the first."""
    number = bisect_right(segments, offset, key=attrgetter("base_offset")) - 1
    return segments[number] if number >= 0 else None


def _batch_at(segment: Segment, offset: int) -> BatchHeader | None:
    """Return the header of the batch that begins at `offset`."""
    position = segment.position_of(offset)
    for _, header in scan_headers(segment.open().file, position, segment.size):
        return header if header.base_offset == offset else None
    return None


def collect_aborted(
    segments: Sequence[Segment],
    start: int,
    end: int,
    aborted_in: Callable[[Segment], Sequence[AbortedTransaction]],
) -> list[AbortedTransaction]:
    """Return transactions with records from `start` up to `end`, sorted by first offset.

    Their markers may lie in any of `segments`, the first of which holds `start`. The search ends at
    an entry whose last stable offset is at or beyond `end`: all before it was decided by then. Both
    ends are offsets, `end` exclusive. Raises as `aborted_in`. Source:
    `LogSegment.collectAbortedTxns` of Kafka.
    """
    aborted: list[AbortedTransaction] = []
    for segment in segments:
        for entry in aborted_in(segment):
            if entry.last_offset >= start and entry.first_offset < end:
                aborted.append(entry)
            if entry.last_stable_offset >= end:
                return sorted(aborted, key=attrgetter("first_offset"))
    return sorted(aborted, key=attrgetter("first_offset"))


def aborted_in(
    segments: SegmentList, snapshots: ProducerSnapshots, segment: Segment
) -> list[AbortedTransaction]:
    """Return the aborted transactions of one of `segments`, sorted by last offset.

    Raises `NotReady` if its index has not been read, and `CorruptLog` if the index is damaged and
    cannot be rebuilt from the log.
    """
    index = segment.txn_index
    if index is None:
        return []
    if index.error is not None:
        raise CorruptLog(index.error.path, index.error.position, index.error.reason)
    if index.entries is None:
        raise NotReady(AbortedJob(segments, snapshots, segment, index))
    return index.entries


class _Copies:
    """Copies of a log's segments, made when they are first needed."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = segments
        self._made: dict[Segment, DetachedSegment] = {}

    def of(self, segment: Segment) -> DetachedSegment:
        if segment not in self._made:
            self._made[segment] = DetachedSegment(segment, opens=True)
        return self._made[segment]

    def holder(self, offset: int) -> Segment | None:
        segment = holder(self._segments, offset)
        return None if segment is None else self.of(segment)

    def close(self) -> None:
        for copy in self._made.values():
            copy.close()
        self._made.clear()


class AbortedJob(CopiesJob):
    """Reads the entries of one index, or rebuilds it if it is wrong."""

    def __init__(
        self,
        segments: SegmentList,
        snapshots: ProducerSnapshots,
        segment: Segment,
        index: TxnIndex,
    ) -> None:
        super().__init__(segment.path(TXN_INDEX), 0, (segment, "aborted"))
        self._list = segments
        self._segment = segment
        self._index = index
        self._generation = segments.generation
        self._segments = segments[: segments.index(segment) + 1]
        self._copies = _Copies(self._segments)
        self._copy = self._copies.of(segment)
        self._snapshots = snapshots.copy()
        self._aborted: list[AbortedTransaction] | None = None
        self._is_rebuilt = False
        self._aside: Path | None = None

    def _work(self) -> None:
        copy = self._copy
        copy.txn_index = self._index.unread()
        aborted = aborted_of(copy)
        if aborted is None or not are_in(self._copies.holder, copy, aborted):
            aborted = self._rebuild()
        self._aborted = aborted

    def _close(self) -> None:
        self._copies.close()

    def _rebuild(self) -> list[AbortedTransaction]:
        """Replay the log up to the end of the segment, from the newest snapshot before it."""
        table, segment = ProducerStateTable(), self._segment
        start, entries = self._snapshots.newest(segment.base_offset)
        table.load(entries)
        first = max(bisect_right(self._segments, start, key=attrgetter("base_offset")) - 1, 0)
        aborted: list[AbortedTransaction] = []
        for source in self._segments[first:]:
            aborted = replay(table, self._copies.of(source), start)
            self._copies.close()
        if aborted:
            self._aside = write_aside(segment.disk, self.path, encode_aborted(aborted))
        self._is_rebuilt = True
        return aborted

    def finish(self) -> None:
        """Hand over the entries; called once, by the owner."""
        if self._is_current():
            self.failure = self.failure or self._missing
            self._index.error = self._error
            self._take()
        if self._aside is not None:
            remove_if_exists(self._segment.disk, self._aside)

    def _is_current(self) -> bool:
        """Return whether the index still waits, and the log still has the files that were read.

        Retention, truncation and compaction remove or replace them.
        """
        every = self._list
        return (
            self._segment.txn_index is self._index
            and self._index.entries is None
            and every.generation == self._generation
            and every[: len(self._segments)] == self._segments
        )

    def _take(self) -> None:
        if self._aborted is None:
            return
        if not self._is_rebuilt:
            self._index.entries = self._aborted
            return
        try:
            apply_aborted(self._segment, self._aborted, self._aside)
        except OSError as error:
            self.failure = error
