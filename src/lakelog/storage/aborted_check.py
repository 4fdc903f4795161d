"""Has a segment's transaction index read and compared with the log before a reader is told of it.

That is a thousand lookups of batches, which a thread does with copies of the segments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakelog.storage.detached import DetachedSegment
from lakelog.storage.errors import CorruptLog
from lakelog.storage.names import TXN_INDEX
from lakelog.storage.preparation import NotReady
from lakelog.storage.seeking import Place, note_sought
from lakelog.storage.transactions import are_in, holder
from lakelog.storage.txn_index import AbortedTransaction, TxnIndex

if TYPE_CHECKING:
    from lakelog.storage.local_log import LocalLog
    from lakelog.storage.segment import Segment


def check_aborted(log: LocalLog, segment: Segment) -> None:
    """Raises `NotReady` if the aborted transactions have not been read."""
    index, place = segment.txn_index, (segment.base_offset, -3)
    if index is not None and index.entries is None and place not in log.sought:
        raise NotReady(AbortedJob(log, segment, index, place))


class _Copies:
    """Copies of a log's segments, made as they are needed."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = list(segments)
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


class AbortedJob:
    """Reads the entries. The owner rebuilds an index that is found wrong."""

    def __init__(self, log: LocalLog, segment: Segment, index: TxnIndex, place: Place) -> None:
        self.path = segment.path(TXN_INDEX)
        self.start = 0
        self.failure: OSError | None = None
        self._log = log
        self._segment = segment
        self._index = index
        self._place = place
        self._truncations = log.truncations
        self._copies = _Copies(log.segments)
        self._copy = self._copies.of(segment)
        self._found: list[AbortedTransaction] | None = None

    def run(self) -> None:
        """Blocks on the device; touches nothing but files."""
        copy = self._copy
        copy.txn_index = self._index.unread()
        try:
            found = copy.aborted()
            if found is not None and are_in(self._copies.holder, copy, found):
                self._found = found
        except FileNotFoundError:
            return  # a segment was deleted meanwhile
        except CorruptLog:
            return  # the owner finds it again
        except OSError as error:
            self.failure = error
        finally:
            self._copies.close()

    def abandon(self) -> None:
        """Nothing is held before `run`."""

    def finish(self) -> None:
        """To be called by the owner, once."""
        log, segment = self._log, self._segment
        note_sought(log, self._place)
        is_same = segment.txn_index is self._index and log.truncations == self._truncations
        if is_same and self._index.entries is None:
            self._index.entries = self._found
