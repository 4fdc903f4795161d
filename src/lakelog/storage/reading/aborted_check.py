"""The aborted transactions of a segment, read from its index in a thread and compared with the log.

A comparison takes up to a thousand lookups of batches. A wrong index is rebuilt by replaying the
log. Both use copies of the segments, while the loop continues to use its own.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Sequence
from pathlib import Path

from lakelog.storage.errors import CorruptLog
from lakelog.storage.files import remove_if_exists, write_aside
from lakelog.storage.indexes.txn_index import AbortedTransaction, TxnIndex, encode_aborted
from lakelog.storage.names import TXN_INDEX
from lakelog.storage.preparation import NotReady
from lakelog.storage.producers.replay import replay
from lakelog.storage.producers.snapshots import ProducerSnapshots
from lakelog.storage.producers.state import ProducerStateTable
from lakelog.storage.reading.transactions import are_in, holder
from lakelog.storage.segments.aborted import aborted_of, apply_aborted
from lakelog.storage.segments.detached import DetachedSegment
from lakelog.storage.segments.segment import Segment
from lakelog.storage.segments.segment_list import SegmentList


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


class AbortedJob:
    """Reads the entries of one index, or rebuilds it if it is wrong."""

    def __init__(
        self,
        segments: SegmentList,
        snapshots: ProducerSnapshots,
        segment: Segment,
        index: TxnIndex,
    ) -> None:
        self.path = segment.path(TXN_INDEX)
        self.start = 0
        self.failure: OSError | None = None
        self.key: Hashable = (segment, "aborted")
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
        self._error: CorruptLog | None = None
        self._missing: FileNotFoundError | None = None

    def run(self) -> None:
        """Block on the device; touches nothing but files.

        Raises nothing: `finish` reports failures.
        """
        copy = self._copy
        copy.txn_index = self._index.unread()
        try:
            aborted = aborted_of(copy)
            if aborted is None or not are_in(self._copies.holder, copy, aborted):
                aborted = self._rebuild()
            self._aborted = aborted
        except FileNotFoundError as error:
            self._missing = error
        except CorruptLog as error:
            self._error = error
        except OSError as error:
            self.failure = error
        finally:
            self._copies.close()

    def _rebuild(self) -> list[AbortedTransaction]:
        """Replay the log up to the end of the segment, from the newest snapshot before it."""
        table, segment = ProducerStateTable(), self._segment
        start, entries = self._snapshots.newest(segment.base_offset)
        table.load(entries)
        first = max(bisect_right(self._segments, start, key=_base_offset) - 1, 0)
        aborted: list[AbortedTransaction] = []
        for source in self._segments[first:]:
            aborted = replay(table, self._copies.of(source), start)
            self._copies.close()
        if aborted:
            self._aside = write_aside(segment.disk, self.path, encode_aborted(aborted))
        self._is_rebuilt = True
        return aborted

    def abandon(self) -> None:
        """Do nothing: the job holds nothing before `run`."""

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


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
