"""A histogram of durations in which noting a duration costs one `list.append`.

Noted durations are sorted into buckets later, many at a time. Sorting and summing a list of floats
runs in C and costs a tenth of finding the bucket of each duration by itself.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

LATENCY_BOUNDS_S = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)


class Durations:
    """Counts of durations by bucket, and their sum.

    `note` takes seconds and may be called from any thread; only the event loop uses the rest. A
    caller that notes many durations calls `fold` regularly: each one is kept in memory until then.
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
        """Sort newly noted durations into the buckets; return the longest in seconds, or 0."""
        if not self._fresh:
            return 0.0
        fresh = self._fresh[:]
        # Not `clear`, which would drop a duration that another thread noted after the copy.
        del self._fresh[: len(fresh)]
        fresh.sort()
        before = 0
        for bucket, bound in enumerate(self.bounds):
            end = bisect_right(fresh, bound)
            self._buckets[bucket] += end - before
            before = end
        self._buckets[-1] += len(fresh) - before
        self.count += len(fresh)
        self.sum_s += sum(fresh)
        assert sum(self._buckets) == self.count, "each duration is in one bucket"
        return fresh[-1]

    def cumulative(self) -> list[int]:
        """Return the number of durations up to each bound (inclusive), and last the number of all.

        Only folded durations count.
        """
        total, counts = 0, []
        for bucket in self._buckets:
            total += bucket
            counts.append(total)
        return counts
