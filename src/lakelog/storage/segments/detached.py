"""A segment for a thread: it reads the files of one that the loop owns, and changes nothing.

To load an index of a large segment may mean to walk through all of its batch headers. A thread does
that with a copy of the segment, while the loop goes on with the segment itself; the loop then takes
over what the copy found (`IndexedSegment.adopt`).
"""

from __future__ import annotations

from lakelog.storage.indexes.index_files import IndexFiles
from lakelog.storage.indexes.segment_index import SegmentIndex
from lakelog.storage.names import LOG
from lakelog.storage.segments.handles import Handle
from lakelog.storage.segments.indexed_segment import IndexedSegment
from lakelog.storage.segments.segment import Segment


class UnwrittenIndexFiles(IndexFiles):
    """Index files that are read only: what is to be written stays in memory."""

    __slots__ = ()

    def append(self, index: SegmentIndex) -> None:
        pass

    def cut(self, index: SegmentIndex) -> None:
        pass


class DetachedSegment(Segment):
    """A copy of an open segment as it is now, without its indexes.

    It shares the open file, so its reader must hold that, unless it `opens` one of its own.
    """

    __slots__ = ()

    def __init__(self, segment: Segment, *, opens: bool = False) -> None:
        for name in IndexedSegment.__slots__:
            setattr(self, name, getattr(segment, name))
        if opens:
            self.handle = None
        self.loaded_index = self.checks = None

    def open(self) -> Handle:
        """Raises `FileNotFoundError` if the segment was deleted."""
        if self.handle is None:
            self.handle = Handle(self.disk.open(self.path(LOG)))
        return self.handle

    def close(self) -> None:
        """Closes the file of a copy that opens one."""
        if self.handle is not None:
            self.handle.file.close()
            self.handle = None

    @property
    def _files(self) -> IndexFiles:
        return UnwrittenIndexFiles(self.disk, self.folder, self.base_offset)
