"""Availability: after all faults have ended, each role of clients succeeds again."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from torture.anomalies import Anomaly, Kind
from torture.history import OK, History

_NS = 1_000_000_000
NEVER = float("inf")


class Recovery(NamedTuple):
    """The seconds from a healing to the first success of a role that began after it."""

    number: int
    role: str
    seconds: float


def check_progress(history: History, deadline_s: float) -> Iterator[Anomaly]:
    """Yield each role without a success that began after a healing and ended in time."""
    for number, role, seconds in recoveries(history):
        if seconds > deadline_s:
            text = f"{role} had no success for {seconds:.1f} s after healing {number}"
            yield Anomaly(Kind.STALLED, text)


def recoveries(history: History) -> list[Recovery]:
    """Return the recovery of each role after each healing, `NEVER` without a success.

    A success of a consumer is also a poll with records. A partition's name is a role of its own:
    the sends to it.
    """
    found: list[Recovery] = []
    for role, times in _successes(history).items():
        invoked = [begun for begun, _ in times]
        # The earliest end of all successes from each on, because they end in any order.
        ends = [*accumulate((end for _, end in reversed(times)), min)][::-1]
        for number, (at, roles) in enumerate(history.healed, 1):
            if role in roles:
                position = bisect_right(invoked, at)
                seconds = (ends[position] - at) / _NS if position < len(ends) else NEVER
                found.append(Recovery(number, role, seconds))
    return sorted(found)


def _successes(history: History) -> dict[str, list[tuple[int, int]]]:
    """Return invocation and completion of each success by role, in order of invocation."""
    found: dict[str, list[tuple[int, int]]] = {
        role: [] for healed in history.healed for role in healed.roles
    }
    for operation in history.operations:
        if operation.outcome == OK and operation.completed is not None:
            for role in operation.roles:
                found.setdefault(role, []).append((operation.invoked, operation.completed))
    for reader in history.readers:
        times = found.setdefault(reader.role, [])
        times += [(received.at, received.at) for received in reader.records]
    return {role: sorted(times) for role, times in found.items()}
