"""Has what a search for an offset reads brought into the page cache, so that no loop waits for it.

Those are the batch headers between two index entries. Before that a thread loads the index of an
older segment, and rebuilds it if it disagrees with the log. Whoever reads on needs no search
(`KnownBatches`), but an index entry at which to end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakelog.runtime.api import File
from lakelog.storage.detached import DetachedSegment
from lakelog.storage.errors import CorruptLog
from lakelog.storage.handles import LogSlice
from lakelog.storage.index_check import is_true
from lakelog.storage.preparation import NotReady
from lakelog.storage.segment import READ_SIZE

if TYPE_CHECKING:
    from lakelog.storage.local_log import LocalLog
    from lakelog.storage.segment import Segment

_SIZE_MAX = 4 * 1024 * 1024
_SHORT_MAX = 1024 * 1024
"""The index of an active segment up to this size is loaded at once: there may be thousands."""

_REMEMBERED = 8
"""Places: one read may need six, and other readers of the log may come in between."""

Place = tuple[int, int]
"""A segment's base offset, and the position in its file that is to be read; -1 for its index, -2
for one that is wrong, -3 for its transaction index."""


def note_sought(log: LocalLog, place: Place) -> None:
    """Nobody is to wait for a place again that was just read."""
    log.sought = (*log.sought[1 - _REMEMBERED :], place)


def check_seek(log: LocalLog, segment: Segment, offset: int) -> None:
    """Raises `NotReady` if looking for an offset in a segment would wait for the device."""
    _check_index(log, segment)
    start, end = segment.search_range(offset)
    _check_range(log, segment, start, start, end)
    index = segment.index
    if not index.trusted:
        entry = index.floor(offset - segment.base_offset)
        _check_entry(log, segment, entry)
        if segment.unchecked:
            _check_entry(log, segment, entry - 1)


def check_end(log: LocalLog, segment: Segment, position: int, end: int) -> None:
    """As `check_seek`, for the index entry at which a read is to end.

    One that comes from a file is compared with the log.
    """
    _check_index(log, segment)
    index = segment.index
    if index.trusted:
        return
    entry = index.floor_position(end)
    if entry >= 0 and (at := index.positions[entry]) > position:
        following = min(at + READ_SIZE, segment.size)
        _check_range(log, segment, at, max(position, following - _SIZE_MAX), following)
    _check_entry(log, segment, entry)


def check_before(log: LocalLog, segment: Segment, position: int) -> None:
    """As `check_seek`, for where a check of the batch at `position` has to begin."""
    checks = segment.checks
    if checks is None or checks.last_end(position)[0] != position:
        _check_index(log, segment)
        _check_entry(log, segment, segment.index.floor_position(position - 1))


def _check_index(log: LocalLog, segment: Segment) -> None:
    is_wrong = segment.index_is_wrong
    if segment.loaded_index is not None and not is_wrong:
        return
    is_missing = segment.index_error is None and (segment.sealed or segment.size > _SHORT_MAX)
    place = segment.base_offset, -2 if is_wrong else -1
    if (is_wrong or is_missing) and place not in log.sought:
        raise NotReady(IndexJob(log, segment, place, LogSlice(segment.open(), 0, 0)))


def _check_entry(log: LocalLog, segment: Segment, entry: int) -> None:
    """A thread rebuilds an index with a wrong entry."""
    index = segment.index
    if not index.trusted and not is_true(segment, index, entry):
        segment.check_index_error()
        segment.distrust_index()
        _check_index(log, segment)


def _check_range(log: LocalLog, segment: Segment, at: int, start: int, end: int) -> None:
    """Not for what has just been read to get `at`: it may be gone again, or not be told of."""
    place, size = (segment.base_offset, at), min(end - start, _SIZE_MAX)
    if place in log.sought or size <= 0:
        return
    part = LogSlice(segment.open(), start, size)
    if segment.disk.is_resident(part.file, at, start + size - at):
        part.release()
        return
    raise NotReady(SeekJob(log, segment, place, part))


class SeekJob:
    """Brings a range into the page cache."""

    def __init__(self, log: LocalLog, segment: Segment, place: Place, part: LogSlice) -> None:
        self.path = part.file.path
        self.start = part.position
        self.failure: OSError | None = None
        self._log = log
        self._segment = segment
        self._place = place
        self._slice = part

    def run(self) -> None:
        """Blocks on the device; touches nothing but files."""
        try:
            self._read(self._slice.file)
        except OSError as error:
            self.failure = error

    def _read(self, file: File) -> None:
        self._segment.disk.read_ahead(file, self._slice.position, self._slice.size)

    def abandon(self) -> None:
        """Gives up the slice of a job that is not to be run."""
        self._slice.release()

    def finish(self) -> None:
        """To be called by the owner, once; the slice is released."""
        self._slice.release()
        note_sought(self._log, self._place)


class IndexJob(SeekJob):
    """Loads the indexes of a segment, or rebuilds them if they are wrong."""

    def __init__(self, log: LocalLog, segment: Segment, place: Place, part: LogSlice) -> None:
        super().__init__(log, segment, place, part)
        self._copy = DetachedSegment(segment)
        self._truncations = log.truncations
        self._error: CorruptLog | None = None

    def _read(self, file: File) -> None:
        try:
            _ = self._copy.index
        except CorruptLog as error:
            self._error = error

    def finish(self) -> None:
        """Raises as `IndexedSegment.adopt`."""
        super().finish()
        log, segment = self._log, self._segment
        if self.failure is not None or log.truncations != self._truncations:
            return
        if segment not in log.segments or self._is_loaded_meanwhile():
            return
        if self._error is None:
            segment.adopt(self._copy)
        else:
            segment.index_error, segment.index_is_wrong = self._error, False

    def _is_loaded_meanwhile(self) -> bool:
        segment = self._segment
        return segment.loaded_index is not None and not segment.index_is_wrong
