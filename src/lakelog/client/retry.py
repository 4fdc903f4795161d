"""When to retry: growing pauses up to a deadline. Seconds on a monotonic clock."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator

from lakelog.base.events import event

_log = logging.getLogger(__name__)

FIRST_S = 0.05
LONGEST_S = 1.0


def pause_s(attempt: int) -> float:
    """How long to wait after failure number `attempt` (from 0): doubling from 50 ms to 1 s."""
    return float(min(FIRST_S * 2 ** min(attempt, 10), LONGEST_S))


def pauses() -> Iterator[float]:
    """The pauses of one operation, without end."""
    return map(pause_s, itertools.count())


def log_retry(error: Exception, after_s: float) -> None:
    """Log that what failed with `error` is tried again in `after_s` seconds."""
    _log.info("Retrying in %.2f s: %s", after_s, error, extra=event("retrying", after_s=after_s))
