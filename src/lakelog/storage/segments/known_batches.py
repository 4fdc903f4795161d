"""Positions of the batches that are likely to be read next.

These are the newest batches, which consumers at the tail fetch, and the batch after each read,
which the same consumer fetches next. All other batches are looked up in the index.
"""

from __future__ import annotations

from lakelog.storage.segments.segment import Segment

_GENERATION_MAX = 128

BatchPosition = tuple[Segment, int, int | None]
"""A batch: its segment, its position in the segment's file, and its size in bytes if known."""


class KnownBatches:
    """Places by base offset, in two generations.

    Dropping the older generation is cheap and never drops the newest places.
    """

    __slots__ = ("_newer", "_older")

    def __init__(self) -> None:
        self._newer: dict[int, BatchPosition] = {}
        self._older: dict[int, BatchPosition] = {}

    def note(self, base_offset: int, location: BatchPosition) -> None:
        """Remember the place of the batch with this base offset."""
        newer = self._newer
        if len(newer) >= _GENERATION_MAX:
            # Two generations bound the memory without a clock or an order of use.
            self._older = newer
            newer = self._newer = {}
        newer[base_offset] = location

    def find(self, base_offset: int) -> BatchPosition | None:
        """Return the place of the batch, or `None` if it is not known."""
        return self._newer.get(base_offset) or self._older.get(base_offset)

    def forget(self, base_offset: int) -> None:
        """Forget the batch with this base offset, if it is known."""
        self._newer.pop(base_offset, None)
        self._older.pop(base_offset, None)

    def clear(self) -> None:
        """Forget all places; called whenever files are cut off or replaced."""
        self._newer = {}
        self._older = {}
