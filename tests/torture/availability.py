"""Availability: a partition whose majority works acknowledges soon after the begin of a fault."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from torture.anomalies import Anomaly, Kind
from torture.history import OK, History
from torture.progress import NEVER

_NS = 1_000_000_000


class Silence(NamedTuple):
    """The seconds from the begin of a fault to the first acknowledgement of a later pulse."""

    seconds: float
    partition: str
    fault: str


def check_availability(history: History, deadline_s: float) -> Iterator[Anomaly]:
    """Yield each partition that acknowledged nothing for too long after a fault of a minority.

    A majority works by the kind of the fault. No broker is asked.
    """
    for seconds, partition, fault in silences(history):
        if seconds > deadline_s:
            text = f"{partition} acknowledged nothing for {seconds:.1f} s after: {fault}"
            yield Anomaly(Kind.UNAVAILABLE, text)


def silences(history: History) -> list[Silence]:
    """Return the silence of each partition after each fault of a minority, the longest first."""
    found: list[Silence] = []
    for partition, times in _acknowledged(history).items():
        invoked = [begun for begun, _ in times]
        # The earliest end of all pulses from each on, because they end in any order.
        ends = [*accumulate((end for _, end in reversed(times)), min)][::-1]
        for at, text in history.minor_faults:
            position = bisect_right(invoked, at)
            seconds = (ends[position] - at) / _NS if position < len(ends) else NEVER
            found.append(Silence(seconds, partition, text))
    return sorted(found, reverse=True)


def _acknowledged(history: History) -> dict[str, list[tuple[int, int]]]:
    """Return invocation and completion of each acknowledged pulse by partition, in order."""
    found: dict[str, list[tuple[int, int]]] = {}
    for operation in history.of_kind("pulse"):
        if operation.outcome == OK and operation.completed is not None:
            for partition, _ in operation.records:
                times = (operation.invoked, operation.completed)
                found.setdefault(partition, []).append(times)
    return {partition: sorted(times) for partition, times in found.items()}
