"""Pauses between retries: they double from 50 ms to 1 s."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator

from lakelog.base.events import event

_log = logging.getLogger(__name__)

FIRST_S = 0.05
LONGEST_S = 1.0


def pause_s(attempt: int) -> float:
    """Return the seconds to wait after failure number `attempt` (from 0)."""
    return float(min(FIRST_S * 2 ** min(attempt, 10), LONGEST_S))


def pauses() -> Iterator[float]:
    """Return an endless iterator of the pauses of one operation, in seconds."""
    return map(pause_s, itertools.count())


def log_retry(error: Exception, after_s: float) -> None:
    """Log a retry in `after_s` seconds."""
    _log.info("Retrying in %.2f s: %s", after_s, error, extra=event("retrying", after_s=after_s))
