"""Where the batches begin that are likely to be read next.

Those are the ones appended last, which consumers at the tail ask for, and the one that follows what
was just read, which the same consumer asks for then. Everybody else is looked up in the index.
"""

from __future__ import annotations

from lakelog.storage.segments.segment import Segment

_GENERATION_MAX = 128

Place = tuple[Segment, int, int | None]
"""A batch: its segment, its position in the segment's file, and its size in bytes if known."""


class KnownBatches:
    """Places by base offset. Two generations, so that forgetting is cheap and never touches what
    was noted last.
    """

    __slots__ = ("_newer", "_older")

    def __init__(self) -> None:
        self._newer: dict[int, Place] = {}
        self._older: dict[int, Place] = {}

    def note(self, base_offset: int, place: Place) -> None:
        newer = self._newer
        if len(newer) >= _GENERATION_MAX:
            self._older = newer
            newer = self._newer = {}
        newer[base_offset] = place

    def find(self, base_offset: int) -> Place | None:
        return self._newer.get(base_offset) or self._older.get(base_offset)

    def forget(self, base_offset: int) -> None:
        self._newer.pop(base_offset, None)
        self._older.pop(base_offset, None)

    def clear(self) -> None:
        """Called whenever files are cut off or replaced."""
        self._newer = {}
        self._older = {}
