"""Ranges of a segment that this process has checked, and the damage that it has found there."""

from __future__ import annotations

from bisect import bisect_left, insort
from itertools import pairwise

_RANGES_MAX = 64


class Checks:
    """Checked ranges and damages of one segment that is older than the process.

    Positions are bytes of the segment file; ends are exclusive.
    """

    __slots__ = ("damages", "ranges")

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int, int]] = []
        """Start, end, and the offset that follows; sorted, disjoint, without damage."""
        self.damages: list[tuple[int, str]] = []

    def covers(self, start: int, end: int) -> bool:
        """Return whether one checked range contains `start` to `end`."""
        return any(first <= start and end <= last for first, last, _ in self.ranges)

    def last_end(self, position: int) -> tuple[int, int]:
        """Return the nearest end of a range at or before `position`, and the offset there.

        Return (0, -1) without such a range.
        """
        ends = [(end, offset) for _, end, offset in self.ranges if end <= position]
        return max(ends, default=(0, -1))

    def add(self, start: int, end: int, next_offset: int) -> None:
        """Add a range without damage; merge it with ranges that it overlaps or touches.

        Beyond the limit of ranges an old one is dropped, which costs a repeated check.
        """
        if end <= start:
            return
        kept = []
        for first, last, offset in self.ranges:
            if last < start or end < first:
                kept.append((first, last, offset))
                continue
            start = min(start, first)
            if last > end:
                end, next_offset = last, offset
        added = (start, end, next_offset)
        insort(kept, added)
        if len(kept) > _RANGES_MAX:
            # Never the new range: the reader that waits for it would ask for it again for ever.
            del kept[kept[0] is added]
        assert all(one[1] < following[0] for one, following in pairwise(kept))
        self.ranges = kept

    def note_damage(self, position: int, reason: str) -> None:
        """Remember the first reason given for a damaged batch."""
        if all(damaged != position for damaged, _ in self.damages):
            insort(self.damages, (position, reason))

    def damage_in(self, start: int, end: int) -> tuple[int, str] | None:
        """Return position and reason of the first known damage from `start` up to `end`."""
        at = bisect_left(self.damages, (start, ""))
        damages = self.damages[at : at + 1]
        return damages[0] if damages and damages[0][0] < end else None
