"""Has what a search for an offset reads brought into the page cache, so that no loop waits for it.

Those are the batch headers between two index entries, and before that the index of an older segment
as long as it is not loaded. Whoever reads on needs no search (`KnownBatches`), but an index entry
at which to end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakelog.storage.handles import LogSlice
from lakelog.storage.index_files import IndexFiles
from lakelog.storage.preparation import NotReady
from lakelog.storage.segment import READ_SIZE

if TYPE_CHECKING:
    from lakelog.storage.local_log import LocalLog
    from lakelog.storage.segment import Segment

_SIZE_MAX = 4 * 1024 * 1024

Place = tuple[int, int]
"""A segment's base offset, and a position in its file; -1 for its index."""


def check_seek(log: LocalLog, segment: Segment, offset: int) -> None:
    """Raises `NotReady` if looking for an offset in a segment would wait for the device."""
    _check_index(log, segment)
    start, end = segment.search_range(offset)
    _check_range(log, segment, start, end)


def check_end(log: LocalLog, segment: Segment, position: int, end: int) -> None:
    """As `check_seek`, for the index entry at which a read is to end.

    One that comes from a file is compared with the log.
    """
    _check_index(log, segment)
    index = segment.index
    entry = index.floor_position(end)
    if not index.trusted and entry >= 0 and index.positions[entry] > position:
        following = min(index.positions[entry] + READ_SIZE, segment.size)
        _check_range(log, segment, max(position, following - _SIZE_MAX), following)


def _check_index(log: LocalLog, segment: Segment) -> None:
    place = segment.base_offset, -1
    if segment.loaded_index is None and segment.sealed and log.sought != place:
        raise NotReady(SeekJob(log, segment, place, LogSlice(segment.open(), 0, 0)))


def _check_range(log: LocalLog, segment: Segment, start: int, end: int) -> None:
    """Not twice in a row for one place: what has been read may be gone again, or not be told of."""
    place, size = (segment.base_offset, start), min(end - start, _SIZE_MAX)
    if log.sought == place or size <= 0:
        return
    part = LogSlice(segment.open(), start, size)
    if segment.disk.is_resident(part.file, start, size):
        part.release()
        return
    raise NotReady(SeekJob(log, segment, place, part))


class SeekJob:
    """Reads a range, or an index and what loading it reads of the segment."""

    def __init__(self, log: LocalLog, segment: Segment, place: Place, part: LogSlice) -> None:
        self.path = part.file.path
        self.start = place[1]
        self.failure: OSError | None = None
        self._log = log
        self._place = place
        self._slice = part
        self._disk = segment.disk
        self._index_files = IndexFiles(segment.disk, segment.folder, segment.base_offset)
        self._end = segment.size

    def run(self) -> None:
        """Blocks on the device; touches nothing but files."""
        position, size = self._slice.position, self._slice.size
        try:
            if self.start < 0:
                position = self._index_files.read().last_time_position
                size = self._end - position
            if size > 0:
                self._disk.read_ahead(self._slice.file, position, size)
        except OSError as error:
            self.failure = error

    def abandon(self) -> None:
        """Gives up the slice of a job that is not to be run."""
        self._slice.release()

    def finish(self) -> None:
        """To be called by the owner, once; the slice is released."""
        self._slice.release()
        self._log.sought = self._place
