"""Reads by offset: whole batches as a slice of a segment file, and their aborted transactions.

No record byte is read here. A reader in sequence finds its next batch among the known ones; others
are found by the index.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.storage.errors import CorruptLog
from lakelog.storage.preparation import wait_for
from lakelog.storage.producers.snapshots import ProducerSnapshots
from lakelog.storage.reading.aborted import aborted_in, collect_aborted
from lakelog.storage.reading.seeking import check_before, check_end, check_end_of_reads, check_seek
from lakelog.storage.segments.checking import slice_of
from lakelog.storage.segments.handles import LogSlice
from lakelog.storage.segments.segment import Segment
from lakelog.storage.segments.segment_list import BatchPosition, SegmentList
from lakelog.storage.segments.txn_index import AbortedTransaction


class LogReader:
    """Reads from the segments of one log. Offsets are of records, sizes in bytes."""

    __slots__ = ("_segments", "_snapshots")

    def __init__(self, segments: SegmentList, snapshots: ProducerSnapshots) -> None:
        self._segments = segments
        self._snapshots = snapshots

    def read(
        self, offset: int, max_bytes: int, end_offset: int, min_one: bool, may_wait: bool
    ) -> LogSlice | None:
        """Return whole batches, from the batch with `offset` on, or `None` if there are none.

        `offset` lies within the log and before `end_offset`, which no batch reaches. The slice has
        at most `max_bytes`; with `min_one` the first batch even if it is larger.

        Raises `KafkaError` -1 for a negative limit; `CorruptLog` for stored bytes that are wrong;
        `OSError`; and, unless it `may_wait` for the device, `NotReady` where it looks for the
        offset.
        """
        if max_bytes <= 0 and not _may_exceed(max_bytes, min_one=min_one):
            return None
        known_batches = self._segments.known_batches
        location = known_batches.find(offset)
        # A reader in sequence finds its batch here, without index and file. All others pay for a
        # search.
        segment, position, first = location or self._locate(offset, may_wait=may_wait)
        limit = segment.size
        is_resident: bool | None = None
        if end_offset < segment.next_offset:
            if not (may_wait or segment.indexes.is_trusted):
                check_seek(self._segments, segment, end_offset)
            # A batch is visible as a whole: it is committed when its last record is.
            limit = segment.position_of(end_offset)
        size = limit - position
        if size > max_bytes:
            if not (may_wait or segment.indexes.is_trusted):
                check_end(self._segments, segment, position, position + max_bytes)
            size = segment.whole_batches(position, limit, max_bytes, first)
            if size > max_bytes and not min_one:
                return None
            following = position + size
            if following < limit:  # a reader in sequence asks for it next
                next_batch, is_resident = segment.look_ahead(position, size)
                if next_batch is not None:
                    # This spares the next read of a consumer the search in the index.
                    known_batches.note(next_batch[0], (segment, following, next_batch[1]))
        if position < segment.unchecked and size > 0:
            again = partial(self.read, offset, max_bytes, end_offset, min_one, may_wait)
            known_again = again if location else None
            return self._older(segment, position, size, offset, known_again, may_wait=may_wait)
        return (
            LogSlice(segment.handle or segment.open(), position, size, is_resident)
            if size > 0
            else None
        )

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
        """Return a slice of bytes that are older than the process.

        `again` reads once more without the known batch: a batch with a wrong base offset may have
        been cached under that offset.
        """
        if not may_wait:
            check_before(self._segments, segment, position)
        try:
            return slice_of(segment, position, size, offset)
        except CorruptLog:
            if again is None:
                raise
            # Only once: without the cached place the index finds the batch, or shows that it is
            # damaged.
            self._segments.known_batches.forget(offset)
            return again()

    def _locate(self, offset: int, *, may_wait: bool) -> BatchPosition:
        """Return the batch that holds `offset`, or the next one where compaction removed that."""
        segments = self._segments
        number = segments.number_of(offset)
        while True:
            segment = segments[number]
            if not may_wait:
                check_seek(segments, segment, offset)
            position = segment.position_of(offset)
            number += 1
            if position < segment.size or number == len(segments):
                return segment, position, None
            # A sealed segment promises offsets up to the next base; compaction keeps its last
            # batch.
            if segment.next_offset > offset:
                raise segment.too_short(offset)

    def aborted_transactions(
        self, offset: int, log_slice: LogSlice, stable_offset: int, *, may_wait: bool
    ) -> list[AbortedTransaction]:
        """Return aborted transactions with records in `log_slice`, read from `offset` on.

        Sorted by first offset. Records at or beyond `stable_offset`, the last stable one, were not
        read. Some transactions that begin shortly after the read may be among them.

        Raises `CorruptLog`, `OSError`, and, unless it `may_wait`, `NotReady` for an index that has
        to be loaded and compared with the log.
        """
        segments = self._segments
        number = segments.number_of(offset)
        # The slice may come from a segment after the one of `offset`, if compaction removed
        # records.
        while (handle := segments[number].handle) is None or handle.file is not log_slice.file:
            number += 1
        segment, position = segments[number], log_slice.position + log_slice.size
        if not may_wait:
            check_end_of_reads(segments, segment, position)
        # The index gives an upper bound only. A transaction too many in the response is harmless,
        # since consumers compare offsets, while a missing one shows aborted records.
        end = min(segment.end_of_reads(position), stable_offset)

        def aborted(one: Segment) -> list[AbortedTransaction]:
            ask = partial(aborted_in, segments, self._snapshots, one)
            return wait_for(ask, may_wait=may_wait)

        return collect_aborted(segments[number:], offset, end, aborted)


def _may_exceed(max_bytes: int, *, min_one: bool) -> bool:
    """Return whether one batch may be read where none is within the limit."""
    if max_bytes < 0:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"a limit of {max_bytes} bytes")
    return min_one
