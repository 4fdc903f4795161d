"""When to try again: growing pauses up to a deadline. Seconds on a monotonic clock."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

FIRST_S = 0.05
LONGEST_S = 1.0


def pause_s(attempt: int) -> float:
    """How long to wait after failure number `attempt` (from 0): doubling from 50 ms to 1 s."""
    return float(min(FIRST_S * 2 ** min(attempt, 10), LONGEST_S))


def pauses() -> Iterator[float]:
    """The pauses of one operation, without end."""
    return map(pause_s, itertools.count())
