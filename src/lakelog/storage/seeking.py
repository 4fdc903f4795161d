"""Whether the loop can search a segment without waiting for the device.

A search reads the batch headers between two index entries, which must be in the page cache. The
indexes must be loaded: a thread loads them, and rebuilds them if they disagree with the log. A
sequential reader needs no search (`KnownBatches`) but an index entry at which to end.

Each check raises `NotReady` with the job that has to run first, and `CorruptLog` if no index can
be made from the log.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable
from typing import TYPE_CHECKING

from lakelog.storage.detached import DetachedSegment
from lakelog.storage.errors import CorruptLog
from lakelog.storage.handles import LogSlice
from lakelog.storage.index_check import is_true
from lakelog.storage.names import LOG
from lakelog.storage.preparation import NotReady
from lakelog.storage.segment import READ_SIZE

if TYPE_CHECKING:
    from lakelog.storage.local_log import LocalLog
    from lakelog.storage.segment import Segment

_SIZE_MAX = 4 * 1024 * 1024
_REMEMBERED = 8
"""Places: one read may need six, and other readers of the log may come in between."""

Place = tuple[int, int]
"""A segment's base offset, and the position in its file that is to be read."""


def note_sought(log: LocalLog, place: Place) -> None:
    """Nobody is to wait for a place again that was just read."""
    log.sought = (*log.sought[1 - _REMEMBERED :], place)


def check_seek(log: LocalLog, segment: Segment, offset: int) -> None:
    """Raises `NotReady` if looking for an offset in a segment would wait for the device."""
    check_index(log, segment)
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
    check_index(log, segment)
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
        check_index(log, segment)
        _check_entry(log, segment, segment.index.floor_position(position - 1))


def check_end_of_reads(log: LocalLog, segment: Segment, position: int) -> None:
    """As `check_seek`, for the index entry that tells which offset a read ends before."""
    check_index(log, segment)
    index = segment.index
    entry = bisect_left(index.positions, position)
    if entry < len(index.positions):
        _check_entry(log, segment, entry)


def check_time(log: LocalLog, segment: Segment, *, timestamp: int, offset: int) -> None:
    """As `check_seek`, for a search for a timestamp (ms) among the records from `offset` on."""
    check_seek(log, segment, offset)
    index = segment.index
    entry = index.floor_time(timestamp)
    if entry < 0:
        return
    check_seek(log, segment, segment.base_offset + index.time_offsets[entry])
    if segment.has_time(entry):
        return
    if index.trusted:
        reason = f"no batch has the timestamp {index.times[entry]} of its time index"
        raise CorruptLog(segment.path(LOG), index.last_time_position, reason)
    _rebuild(log, segment)


def check_greatest(log: LocalLog, segment: Segment) -> None:
    """Raises `NotReady` unless `max_timestamp` is known to be that of the whole segment."""
    if not segment.knows_greatest():
        check_index(log, segment)


def check_last_time(log: LocalLog, segment: Segment) -> None:
    """Raises `NotReady` if `last_time_position` needs indexes that are not loaded."""
    if segment.last_entry_position() is None:
        check_index(log, segment)


def check_append(log: LocalLog) -> None:
    """Raises `NotReady` if the active segment's indexes are not loaded; they stay loaded."""
    if log.active_segment.loaded_index is None:
        check_index(log, log.active_segment)


def check_index(log: LocalLog, segment: Segment) -> None:
    """Raises `NotReady` unless the indexes are loaded and not known to be wrong."""
    if segment.loaded_index is not None and not segment.index_is_wrong:
        return
    segment.check_index_error()
    raise NotReady(IndexJob(log, segment))


def _check_entry(log: LocalLog, segment: Segment, entry: int) -> None:
    """A thread rebuilds an index with a wrong entry."""
    index = segment.index
    if not index.trusted and not is_true(segment, index, entry):
        _rebuild(log, segment)


def _rebuild(log: LocalLog, segment: Segment) -> None:
    segment.check_index_error()
    segment.distrust_index()
    check_index(log, segment)


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
        self.key: Hashable = (segment, place)
        self._log = log
        self._disk = segment.disk
        self._place = place
        self._slice = part

    def run(self) -> None:
        """Blocks on the device; touches nothing but files."""
        try:
            self._disk.read_ahead(self._slice.file, self._slice.position, self._slice.size)
        except OSError as error:
            self.failure = error

    def abandon(self) -> None:
        """Gives up the slice of a job that is not to be run."""
        self._slice.release()

    def finish(self) -> None:
        """To be called by the owner, once; the slice is released."""
        self._slice.release()
        note_sought(self._log, self._place)


class IndexJob:
    """Loads the indexes of a segment, or rebuilds them if they disagree with the log.

    It opens the file for itself, and only to `run`: thousands may wait.
    """

    def __init__(self, log: LocalLog, segment: Segment) -> None:
        self.path = segment.path(LOG)
        self.start = 0
        self.failure: OSError | None = None
        self.key: Hashable = (segment, "index")
        self._log = log
        self._segment = segment
        self._copy = DetachedSegment(segment, opens=True)
        self._truncations = log.truncations
        self._error: CorruptLog | None = None
        self._missing: FileNotFoundError | None = None

    def run(self) -> None:
        """Blocks on the device; touches nothing but files."""
        try:
            _ = self._copy.index
        except FileNotFoundError as error:
            self._missing = error
        except CorruptLog as error:
            self._error = error
        except OSError as error:
            self.failure = error
        finally:
            self._copy.close()

    def abandon(self) -> None:
        """Nothing is held before `run`."""

    def finish(self) -> None:
        """To be called by the owner, once."""
        log, segment = self._log, self._segment
        if self.failure is not None or log.truncations != self._truncations:
            return
        if segment not in log.segments or self._is_loaded_meanwhile():
            return
        self.failure = self._missing
        if self.failure is not None:
            return
        if self._error is None:
            self._adopt()
        if self._error is not None:
            segment.index_error, segment.index_is_wrong = self._error, False

    def _adopt(self) -> None:
        try:
            self._segment.adopt(self._copy)
        except CorruptLog as error:
            self._error = error
        except OSError as error:
            self.failure = error

    def _is_loaded_meanwhile(self) -> bool:
        segment = self._segment
        return segment.loaded_index is not None and not segment.index_is_wrong
