"""A histogram of durations that costs one `list.append` to add to.

What was noted is sorted into the buckets later, many at a time: sorting and summing a list of
floats is done in C, for a tenth of what finding a bucket costs for each by itself.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

LATENCY_BOUNDS_S = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)


class Durations:
    """`note` takes seconds and may be called from any thread; all else belongs to the loop.

    Whoever notes many has to `fold` now and then, for until then each is kept.
    """

    __slots__ = ("_buckets", "_fresh", "bounds", "count", "note", "sum_s")

    def __init__(self, bounds_s: Sequence[float] = LATENCY_BOUNDS_S) -> None:
        self.bounds = tuple(bounds_s)
        """Upper ends of the buckets, inclusive and ascending; one more bucket has no end."""
        self.count = 0
        self.sum_s = 0.0
        self._buckets = [0] * (len(self.bounds) + 1)
        self._fresh: list[float] = []
        self.note: Callable[[float], None] = self._fresh.append

    def fold(self) -> float:
        """Sorts what was noted since the last time into the buckets; the longest of it, or 0."""
        if not self._fresh:
            return 0.0
        fresh = self._fresh[:]
        # Not `clear`: another thread may have noted one more since.
        del self._fresh[: len(fresh)]
        fresh.sort()
        before = 0
        for place, bound in enumerate(self.bounds):
            end = bisect_right(fresh, bound)
            self._buckets[place] += end - before
            before = end
        self._buckets[-1] += len(fresh) - before
        self.count += len(fresh)
        self.sum_s += sum(fresh)
        return fresh[-1]

    def cumulative(self) -> list[int]:
        """How many were at most each bound, and at the end how many in all."""
        total, counts = 0, []
        for bucket in self._buckets:
            total += bucket
            counts.append(total)
        return counts
