"""Availability: a partition whose majority works acknowledges soon after the begin of a fault.

And no surface shows health for longer than that while a partition cannot be written.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import NamedTuple

from torture.anomalies import Anomaly, Kind
from torture.history import OK, History
from torture.patience import Patience
from torture.progress import NEVER

_NS = 1_000_000_000
_UNSEEN_NS = 3 * _NS
"""A surface without a question for so long shows nothing."""
Times = list[tuple[int, int]]
"""Begin and end of each of several intervals, in order."""


class Silence(NamedTuple):
    """The seconds from the begin of a fault to the first acknowledgement of a later pulse.

    They end when the next fault begins that is not of a minority.
    """

    seconds: float
    partition: str
    fault: str
    at: int


def check_availability(history: History, session_s: float) -> Iterator[Anomaly]:
    """Yield each partition that acknowledged nothing for too long after a fault of a minority.

    A majority works by the kind of the fault. No broker is asked.

    Args:
        session_s: the session timeout of the brokers; infinite, and nothing is required.
    """
    patience = Patience(session_s, history)
    for seconds, partition, fault, at in silences(history):
        limit_s = patience.between(at, at + seconds * _NS)
        if seconds > limit_s:
            text = f"{partition} acknowledged nothing for {seconds:.1f} s after: {fault}"
            yield Anomaly(Kind.UNAVAILABLE, f"{text} (at most {limit_s:.1f} s)")


def check_shown(history: History, session_s: float) -> Iterator[Anomaly]:
    """Yield each partition that could not be written for too long while all looked healthy."""
    patience = Patience(session_s, history)
    pulses = _acknowledged(history)
    for surface, runs in _healthy(history).items():
        for partition, times in pulses.items():
            ends = sorted(end for _, end in times)
            for start, end in _overlaps(pairwise(ends), runs):
                limit_s = patience.between(start, end)
                if end - start > limit_s * _NS and not _is_blind(history, start, end, limit_s):
                    text = f"{surface} showed health for {(end - start) / _NS:.1f} s, in which "
                    text += f"{partition} acknowledged nothing (at most {limit_s:.1f} s)"
                    yield Anomaly(Kind.HIDDEN, text)


def silences(history: History) -> list[Silence]:
    """Return the silence of each partition after each fault of a minority, the longest first."""
    found: list[Silence] = []
    for partition, times in _acknowledged(history).items():
        invoked = [begun for begun, _ in times]
        # The earliest end of all pulses from each on, because they end in any order.
        ends = [*accumulate((end for _, end in reversed(times)), min)][::-1]
        for at, text in history.minor_faults:
            position = bisect_right(invoked, at)
            end = ends[position] if position < len(ends) else NEVER
            end = min([end, *(other for other in history.major_faults if other > at)])
            seconds = (end - at) / _NS
            found.append(Silence(seconds, partition, text, at))
    return sorted(found, reverse=True)


def _acknowledged(history: History) -> dict[str, Times]:
    """Return invocation and completion of each acknowledged pulse by partition, in order."""
    found: dict[str, Times] = {}
    for operation in history.of_kind("pulse"):
        if operation.outcome == OK and operation.completed is not None:
            for partition, _ in operation.records:
                times = (operation.invoked, operation.completed)
                found.setdefault(partition, []).append(times)
    return {partition: sorted(times) for partition, times in found.items()}


def _healthy(history: History) -> dict[str, Times]:
    """Return by surface when it showed health, whenever it was asked."""
    found: dict[str, Times] = {}
    shown: dict[str, tuple[int, int]] = {}
    for operation in history.of_kind("shown"):
        surface, end = operation.process, operation.completed
        if operation.outcome != OK or end is None:
            shown.pop(surface, None)
            continue
        start, newest = shown.get(surface, (end, end))
        runs = found.setdefault(surface, [])
        if surface in shown and operation.invoked - newest <= _UNSEEN_NS:
            runs[-1] = shown[surface] = (start, end)
        else:
            runs.append((end, end))
            shown[surface] = (end, end)
    return found


def _overlaps(gaps: Iterator[tuple[int, int]], runs: Times) -> Iterator[tuple[int, int]]:
    for begun, ended in gaps:
        for start, end in runs:
            if start < ended and begun < end:
                yield max(start, begun), min(end, ended)


def _is_blind(history: History, start: int, end: int, rest_s: float) -> bool:
    """Return whether the clients were cut off in between, or had just been."""
    return any(at < end and start < healed + rest_s * _NS for at, healed in history.blind)
