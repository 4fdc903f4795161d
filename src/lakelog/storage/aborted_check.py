"""The aborted transactions of a segment, read from its index in a thread and compared with the log.

A comparison is up to a thousand lookups of batches. An index that cannot be right is rebuilt by
replaying the log. Both work on copies of the segments, while the loop goes on with its own.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lakelog.storage.detached import DetachedSegment
from lakelog.storage.errors import CorruptLog
from lakelog.storage.files import remove_if_exists, write_aside
from lakelog.storage.names import TXN_INDEX
from lakelog.storage.preparation import NotReady
from lakelog.storage.producer_state import ProducerStateTable
from lakelog.storage.seeking import check_append
from lakelog.storage.snapshots import ProducerSnapshots
from lakelog.storage.transactions import are_in, holder, replay
from lakelog.storage.txn_index import AbortedTransaction, TxnIndex, encode_aborted

if TYPE_CHECKING:
    from lakelog.storage.local_log import LocalLog
    from lakelog.storage.segment import Segment


def aborted_in(log: LocalLog, segment: Segment) -> list[AbortedTransaction]:
    """The segment's aborted transactions, by their last offsets.

    Raises `NotReady` if they have not been read, and `CorruptLog` if neither index nor log can
    tell them.
    """
    index = segment.txn_index
    if index is None:
        return []
    if index.error is not None:
        raise CorruptLog(index.error.path, index.error.position, index.error.reason)
    if index.entries is None:
        raise NotReady(AbortedJob(log, segment, index))
    return index.entries


def check_marker(log: LocalLog, *, commit: bool) -> None:
    """Raises as `check_append` and, for a marker that aborts, as `aborted_in`."""
    check_append(log)
    if not commit:
        aborted_in(log, log.active_segment)


class _Copies:
    """Copies of a log's segments, made as they are needed."""

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
    """Reads the entries of one index, or rebuilds it if it cannot be right."""

    def __init__(self, log: LocalLog, segment: Segment, index: TxnIndex) -> None:
        self.path = segment.path(TXN_INDEX)
        self.start = 0
        self.failure: OSError | None = None
        self.key: Hashable = (segment, "aborted")
        self._log = log
        self._segment = segment
        self._index = index
        self._truncations = log.truncations
        self._segments = log.segments[: log.segments.index(segment) + 1]
        self._copies = _Copies(self._segments)
        self._copy = self._copies.of(segment)
        self._snapshots = ProducerSnapshots(
            log.handles.disk, log.snapshots.folder, log.snapshots.offsets
        )
        self._found: list[AbortedTransaction] | None = None
        self._is_rebuilt = False
        self._aside: Path | None = None
        self._error: CorruptLog | None = None
        self._missing: FileNotFoundError | None = None

    def run(self) -> None:
        """Blocks on the device; touches nothing but files."""
        copy = self._copy
        copy.txn_index = self._index.unread()
        try:
            found = copy.aborted()
            if found is None or not are_in(self._copies.holder, copy, found):
                found = self._rebuild()
            self._found = found
        except FileNotFoundError as error:
            self._missing = error
        except CorruptLog as error:
            self._error = error
        except OSError as error:
            self.failure = error
        finally:
            self._copies.close()

    def _rebuild(self) -> list[AbortedTransaction]:
        """Replays the log up to the end of the segment, from the newest snapshot before it."""
        table, segment = ProducerStateTable(), self._segment
        start, entries = self._snapshots.newest(segment.base_offset)
        table.load(entries)
        first = max(bisect_right(self._segments, start, key=_base_offset) - 1, 0)
        found: list[AbortedTransaction] = []
        for each in self._segments[first:]:
            found = replay(table, self._copies.of(each), start)
            self._copies.close()
        if found:
            self._aside = write_aside(segment.disk, self.path, encode_aborted(found))
        self._is_rebuilt = True
        return found

    def abandon(self) -> None:
        """Nothing is held before `run`."""

    def finish(self) -> None:
        """To be called by the owner, once."""
        if self._is_current():
            self.failure = self.failure or self._missing
            self._index.error = self._error
            self._take()
        if self._aside is not None:
            remove_if_exists(self._segment.disk, self._aside)

    def _is_current(self) -> bool:
        """Whether nobody was faster, and the log has the files that were read.

        Retention, truncation and compaction take or replace them.
        """
        log = self._log
        return (
            self._segment.txn_index is self._index
            and self._index.entries is None
            and log.truncations == self._truncations
            and log.segments[: len(self._segments)] == self._segments
        )

    def _take(self) -> None:
        if self._found is None:
            return
        if not self._is_rebuilt:
            self._index.entries = self._found
            return
        try:
            self._segment.adopt_aborted(self._found, self._aside)
        except OSError as error:
            self.failure = error


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
