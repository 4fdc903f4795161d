"""What readers ask of a log: batches by offset, offsets by time, and what was aborted.

Nothing of a log changes by it but what it remembers of reads.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from functools import partial

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.storage.errors import CorruptLog
from lakelog.storage.indexes.txn_index import AbortedTransaction
from lakelog.storage.local_log import LocalLog
from lakelog.storage.preparation import wait_for
from lakelog.storage.reading.aborted_check import aborted_in
from lakelog.storage.reading.seeking import check_before, check_end, check_end_of_reads, check_seek
from lakelog.storage.reading.timestamps import (
    TimestampOffset,
    find_by_timestamp,
    find_max_timestamp,
)
from lakelog.storage.reading.transactions import collect_aborted
from lakelog.storage.segments.checking import may_exceed, slice_of
from lakelog.storage.segments.handles import LogSlice
from lakelog.storage.segments.known_batches import Place
from lakelog.storage.segments.segment import Segment


class ReadableLog(LocalLog):
    """Offsets are of records, sizes in bytes, times in milliseconds."""

    __slots__ = ()

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        end_offset: int,
        min_one: bool = True,
        may_wait: bool = True,
    ) -> LogSlice | None:
        """Whole batches from the one that holds `offset` on, none reaching to `end_offset`.

        At most `max_bytes`; with `min_one` the first batch even if it is larger. `None` when there
        is nothing. Raises `KafkaError`: 1 outside the log, -1 for records within a negative limit;
        `NotReady` if it may not wait for the device where it looks for the offset.
        """
        end = self.log_end_offset
        if not self.log_start_offset <= offset <= end:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is outside {self.log_start_offset} to {end}",
            )
        if offset >= end_offset or offset == end:
            return None
        if max_bytes <= 0 and not may_exceed(max_bytes, min_one=min_one):
            return None
        known = self._known.find(offset)
        segment, position, first = known or self._locate(offset, may_wait=may_wait)
        limit = segment.size
        is_resident: bool | None = None
        if end_offset < end and end_offset < segment.next_offset:
            if not (may_wait or segment.has_trusted_index):
                check_seek(self, segment, end_offset)
            limit = segment.position_of(end_offset)
        size = limit - position
        if size > max_bytes:
            if not (may_wait or segment.has_trusted_index):
                check_end(self, segment, position, position + max_bytes)
            size = segment.whole_batches(position, limit, max_bytes, first)
            if size > max_bytes and not min_one:
                return None
            is_resident = self._look_on(segment, position, size, limit)
        if position < segment.unchecked and size > 0:
            again = partial(self.read, offset, max_bytes, end_offset=end_offset)
            again = partial(again, min_one=min_one, may_wait=may_wait)
            known_again = again if known else None
            return self._older(segment, position, size, offset, known_again, may_wait=may_wait)
        return LogSlice(segment.open(), position, size, is_resident) if size > 0 else None

    def _older(
        self,
        segment: Segment,
        position: int,
        size: int,
        offset: int,
        again: Callable[[], LogSlice | None] | None,
        *,
        may_wait: bool,
    ) -> LogSlice | None:
        """`again` where a batch with a wrong base offset was known for the one with that offset."""
        if not may_wait:
            check_before(self, segment, position)
        try:
            return slice_of(segment, position, size, offset)
        except CorruptLog:
            if again is None:
                raise
            self._known.forget(offset)
            return again()

    def _look_on(self, segment: Segment, position: int, size: int, limit: int) -> bool | None:
        """Looks at what whoever reads in sequence asks for next; whether a range is resident."""
        following = position + size
        if following >= limit:
            return None
        found = segment.batch_at(following)
        if found is not None:
            self._known.note(found[0], (segment, following, found[1]))
        return segment.is_resident(position, size, is_next_read=found is not None)

    def _locate(self, offset: int, *, may_wait: bool) -> Place:
        """The batch that holds `offset`, or the next one where compaction took that."""
        number = max(bisect_right(self._bases, offset) - 1, 0)
        while True:
            segment = self.segments[number]
            if not may_wait:
                check_seek(self, segment, offset)
            position = segment.position_of(offset)
            number += 1
            if position < segment.size or number == len(self.segments):
                return segment, position, None
            if segment.next_offset > offset:
                raise segment.too_short(offset)

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record at or after a time (ms); `CorruptLog` for a batch that is damaged."""
        return find_by_timestamp(self, timestamp)

    def max_timestamp(self) -> TimestampOffset | None:
        """The first record with the greatest timestamp."""
        return find_max_timestamp(self)

    def aborted_transactions(
        self, offset: int, found: LogSlice, *, may_wait: bool = True
    ) -> list[AbortedTransaction]:
        """Those with records in what was read from `offset` up to the last stable offset.

        By their first offsets; some that begin shortly after it may be among them. Raises
        `NotReady` if it may not wait for an index to be loaded and compared with the log.
        """
        if not self.has_aborted:
            return []
        number = max(bisect_right(self._bases, offset) - 1, 0)
        while (handle := self.segments[number].handle) is None or handle.file is not found.file:
            number += 1
        segment, position = self.segments[number], found.position + found.size
        if not may_wait:
            check_end_of_reads(self, segment, position)
        end = min(segment.end_of_reads(position), self.last_stable_offset)
        aborted = self._wait_for_aborted if may_wait else partial(aborted_in, self)
        return collect_aborted(self.segments[number:], offset, end, aborted)

    def _wait_for_aborted(self, segment: Segment) -> list[AbortedTransaction]:
        return wait_for(partial(aborted_in, self, segment))
