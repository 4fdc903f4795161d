"""Counters and histograms, cheap enough for the path of every request, and their text format.

They are plain numbers and lists, which are labelled, summed and formatted only when `/metrics` is
requested. `lakelog.server.monitoring` has the names of the metrics.

The format is Prometheus' (exposition format 0.0.4):
https://prometheus.io/docs/instrumenting/exposition_formats/. The package prometheus-client is not
used: it takes 20 times as long for a line, and importing it costs memory and blocks the event loop.
The tests read this module's output with its parser.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import NamedTuple

LATENCY_BOUNDS_S = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)


class Durations:
    """Counts of durations by bucket, and their sum.

    Noting a duration costs one `list.append`. Noted durations are sorted into buckets later, many
    at a time. Sorting and summing a list of floats runs in C and costs a tenth of finding the
    bucket of each duration by itself.

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


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


class Kind(Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Family(NamedTuple):
    """A metric: all samples of one name. `labels` are the names of the label values."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


Sample = tuple[tuple[str, ...], float]
"""Label values in the order of `Family.labels`, and the number."""


def exposed(family: Family, samples: Iterable[Sample]) -> Iterator[str]:
    """Yield the lines of a counter or a gauge, without line ends."""
    assert family.kind is not Kind.HISTOGRAM
    yield from _head(family)
    for values, number in samples:
        yield f"{family.name}{_labels(family.labels, values)} {_number(number)}"


def exposed_durations(
    family: Family, samples: Iterable[tuple[tuple[str, ...], Sequence[Durations]]]
) -> Iterator[str]:
    """Yield the lines of a histogram in seconds, without line ends.

    The durations of one sample have equal bounds and are summed.
    """
    assert family.kind is Kind.HISTOGRAM
    yield from _head(family)
    names = (*family.labels, "le")
    for values, parts in samples:
        bounds = [*map(_number, parts[0].bounds), "+Inf"]
        total_s = sum(part.sum_s for part in parts)
        counts = [sum(column) for column in zip(*(p.cumulative() for p in parts), strict=True)]
        for bound, count in zip(bounds, counts, strict=True):
            yield f"{family.name}_bucket{_labels(names, (*values, bound))} {count}"
        labels = _labels(family.labels, values)
        yield f"{family.name}_sum{labels} {_number(total_s)}"
        yield f"{family.name}_count{labels} {counts[-1]}"


def _head(family: Family) -> Iterator[str]:
    text = family.help.replace("\\", "\\\\").replace("\n", "\\n")
    yield f"# HELP {family.name} {text}"
    yield f"# TYPE {family.name} {family.kind.value}"


def _labels(names: Sequence[str], values: Sequence[str]) -> str:
    if not names:
        return ""
    pairs = zip(names, values, strict=True)
    return "{" + ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in pairs) + "}"


def _number(number: float) -> str:
    if isinstance(number, float) and math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    return repr(number)
