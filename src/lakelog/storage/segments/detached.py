"""A copy of a segment for a thread: it reads the files of a segment that the loop owns.

To load the index of a large segment may require a walk over all of its batch headers. A thread does
that with a copy, while the loop continues to use the segment itself. The loop then applies the
indexes of the copy (`Segment.apply`).
"""

from __future__ import annotations

from lakelog.storage.files import LOG
from lakelog.storage.segments.handles import Handle
from lakelog.storage.segments.segment import Segment


class DetachedSegment(Segment):
    """A copy of an open segment as it is now, without its indexes.

    It shares the open file, which its user must hold open, unless it `opens` one of its own.
    """

    __slots__ = ()

    def __init__(self, segment: Segment, *, opens: bool = False) -> None:
        for name in Segment.__slots__:
            setattr(self, name, getattr(segment, name))
        if opens:
            self.handle = None
        self.indexes = segment.indexes.detached()
        self.checks = None

    def open(self) -> Handle:
        """Return the open file. Raises `OSError`: `FileNotFoundError` for a deleted segment."""
        if self.handle is None:
            self.handle = Handle(self.disk.open(self.path(LOG)))
        return self.handle

    def close(self) -> None:
        """Close the file of a copy that opened one."""
        if self.handle is not None:
            self.handle.file.close()
            self.handle = None
