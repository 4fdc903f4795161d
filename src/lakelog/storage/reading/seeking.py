"""Checks whether the loop can search a segment without waiting for the device.

A search reads the batch headers between two index entries, which must be in the page cache. The
indexes must be loaded: a thread loads them, and rebuilds them if they disagree with the log. A
reader in sequence needs no search (`KnownBatches`), only an index entry where its read ends.

Each check raises `NotReady` with the job that has to run first, `CorruptLog` if no index can be
made from the log, and `OSError`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable

from lakelog.storage.errors import CorruptLog
from lakelog.storage.files import LOG
from lakelog.storage.preparation import CopiesJob, DetachedSegment, NotReady
from lakelog.storage.segments.handles import LogSlice
from lakelog.storage.segments.segment import READ_SIZE, Segment
from lakelog.storage.segments.segment_list import SegmentList, SoughtBatch

_SIZE_MAX = 4 * 1024 * 1024


def check_seek(segments: SegmentList, segment: Segment, offset: int) -> None:
    """Raise `NotReady` if a search for an offset in a segment would wait for the device.

    Raises also `CorruptLog` and `OSError`.
    """
    check_index(segments, segment)
    start, end = segment.search_range(offset)
    _check_range(segments, segment, start, start, end)
    index = segment.index
    if not index.trusted:
        entry = index.floor(offset - segment.base_offset)
        _check_entry(segments, segment, entry)
        if segment.unchecked:
            _check_entry(segments, segment, entry - 1)


def check_end(segments: SegmentList, segment: Segment, position: int, end: int) -> None:
    """Raise as `check_seek`, for the index entry where a read of bytes up to `end` ends.

    An entry from a file is compared with the log.
    """
    check_index(segments, segment)
    index = segment.index
    if index.trusted:
        return
    entry = index.floor_position(end)
    if entry >= 0 and (at := index.positions[entry]) > position:
        following = min(at + READ_SIZE, segment.size)
        _check_range(segments, segment, at, max(position, following - _SIZE_MAX), following)
    _check_entry(segments, segment, entry)


def check_before(segments: SegmentList, segment: Segment, position: int) -> None:
    """Raise as `check_seek`, for the place where a check of the batch at `position` begins."""
    checks = segment.checks
    if checks is None or checks.last_end(position)[0] != position:
        check_index(segments, segment)
        _check_entry(segments, segment, segment.index.floor_position(position - 1))


def check_end_of_reads(segments: SegmentList, segment: Segment, position: int) -> None:
    """Raise as `check_seek`, for the index entry that bounds the offsets before `position`."""
    check_index(segments, segment)
    index = segment.index
    entry = bisect_left(index.positions, position)
    if entry < len(index.positions):
        _check_entry(segments, segment, entry)


def check_time(segments: SegmentList, segment: Segment, *, timestamp: int, offset: int) -> None:
    """Raise as `check_seek`, for a search for a timestamp (ms) from `offset` on.

    Raises also `CorruptLog` if an index that this process made disagrees with the
    log.
    """
    check_seek(segments, segment, offset)
    index = segment.index
    entry = index.floor_time(timestamp)
    if entry < 0:
        return
    check_seek(segments, segment, segment.base_offset + index.time_offsets[entry])
    if segment.has_time(entry):
        return
    if index.trusted:
        reason = f"no batch has the timestamp {index.times[entry]} of its time index"
        raise CorruptLog(segment.path(LOG), index.last_time_position, reason)
    _rebuild(segments, segment)


def check_greatest(segments: SegmentList, segment: Segment) -> None:
    """Raise `NotReady` unless `max_timestamp` is known to be that of the whole segment.

    Raises `CorruptLog` and `OSError` too.
    """
    if not segment.knows_greatest():
        check_index(segments, segment)


def check_last_time(segments: SegmentList, segment: Segment) -> None:
    """Raise `NotReady` if `last_time_position` needs indexes that are not loaded."""
    if segment.last_entry_position() is None:
        check_index(segments, segment)


def check_append(segments: SegmentList) -> None:
    """Raise `NotReady` if the active segment's indexes are not loaded; they stay loaded.

    Raises `CorruptLog` if they cannot be made from the log.
    """
    if segments.active.indexes.loaded is None:
        check_index(segments, segments.active)


def check_index(segments: SegmentList, segment: Segment) -> None:
    """Raise `NotReady` unless the indexes are loaded and not known to be wrong.

    Raises `CorruptLog` if an earlier attempt failed.
    """
    if segment.indexes.loaded is not None and not segment.indexes.is_wrong:
        return
    segment.indexes.check_error()
    raise NotReady(IndexJob(segments, segment))


def _check_entry(segments: SegmentList, segment: Segment, entry: int) -> None:
    """Have a thread rebuild the index if an entry is wrong."""
    index = segment.index
    if not index.trusted and not segment.is_true(entry):
        _rebuild(segments, segment)


def _rebuild(segments: SegmentList, segment: Segment) -> None:
    segment.indexes.check_error()
    segment.distrust_index()
    check_index(segments, segment)


def _check_range(segments: SegmentList, segment: Segment, at: int, start: int, end: int) -> None:
    """Raise `NotReady` unless the range is resident or was just read ahead for `at`.

    A range that was just read may be evicted again, or the file system may not report it; without
    that exception a search might never begin.
    """
    target, size = (segment.base_offset, at), min(end - start, _SIZE_MAX)
    if target in segments.sought or size <= 0:
        return
    part = LogSlice(segment.open(), start, size)
    if segment.disk.is_resident(part.file, at, start + size - at):
        part.release()
        return
    raise NotReady(SeekJob(segments, segment, target, part))


class SeekJob:
    """Reads a range into the page cache."""

    def __init__(
        self, segments: SegmentList, segment: Segment, target: SoughtBatch, part: LogSlice
    ) -> None:
        self.path = part.file.path
        self.start = part.position
        self.failure: OSError | None = None
        self.key: Hashable = (segment, target)
        self._segments = segments
        self._disk = segment.disk
        self._target = target
        self._slice = part

    def run(self) -> None:
        """Block on the device; touches nothing but files. An `OSError` becomes `failure`."""
        try:
            self._disk.read_ahead(self._slice.file, self._slice.position, self._slice.size)
        except OSError as error:
            self.failure = error

    def abandon(self) -> None:
        """Release the slice of a job that will not be run."""
        self._slice.release()

    def finish(self) -> None:
        """Release the slice and note the place; called once, by the owner."""
        self._slice.release()
        self._segments.note_sought(self._target)


class IndexJob(CopiesJob):
    """Loads the indexes of a segment, or rebuilds them if they disagree with the log."""

    def __init__(self, segments: SegmentList, segment: Segment) -> None:
        super().__init__(segment.path(LOG), 0, (segment, "index"))
        self._segments = segments
        self._segment = segment
        self._copy = DetachedSegment(segment, opens=True)
        self._generation = segments.generation

    def _work(self) -> None:
        _ = self._copy.index

    def _close(self) -> None:
        self._copy.close()

    def finish(self) -> None:
        """Apply the indexes; called once, by the owner.

        An error becomes `failure` or the segment's `index_error`.
        """
        segments, segment = self._segments, self._segment
        # After a truncation the copy describes batches that are gone.
        if self.failure is not None or segments.generation != self._generation:
            return
        if segment not in segments or self._is_loaded_meanwhile():
            return
        self.failure = self._missing
        if self.failure is not None:
            return
        if self._error is None:
            self._apply()
        if self._error is not None:
            segment.indexes.error, segment.indexes.is_wrong = self._error, False

    def _apply(self) -> None:
        try:
            self._segment.apply(self._copy)
        except CorruptLog as error:
            self._error = error
        except OSError as error:
            self.failure = error

    def _is_loaded_meanwhile(self) -> bool:
        segment = self._segment
        return segment.indexes.loaded is not None and not segment.indexes.is_wrong
