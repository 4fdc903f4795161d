"""Prometheus' text format for metrics (exposition format 0.0.4).

Source: https://prometheus.io/docs/instrumenting/exposition_formats/. The package prometheus-client
is not used: it takes 20 times as long for a line, and importing it costs memory and blocks the
event loop. The tests read this module's output with its parser.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import NamedTuple

from lakelog.metrics.durations import Durations

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
