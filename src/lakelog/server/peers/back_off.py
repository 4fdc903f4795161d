"""Pauses between attempts to connect, which double up to a limit, with jitter.

Limits and jitter are the defaults of Kafka's clients (`reconnect.backoff.ms`,
`reconnect.backoff.max.ms`).
"""

from __future__ import annotations

from lakelog.runtime.api import Random

FIRST_S = 0.05
LONGEST_S = 1.0
JITTER = 0.2
"""The share by which a pause is longer or shorter at random: brokers shall not call in step."""
_DOUBLINGS_MAX = 10
_GRAIN = 1 << 20


class BackOff:
    """The pauses of one peer."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._failures = 0

    def next_s(self) -> float:
        """Return the seconds to wait after one more failure in a row."""
        factor = 1 << min(self._failures, _DOUBLINGS_MAX)
        self._failures += 1
        jitter = 2 * self._random.below(_GRAIN) / _GRAIN - 1
        return min(FIRST_S * factor, LONGEST_S) * (1 + JITTER * jitter)

    def reset(self) -> None:
        """Begin with the first pause again, after a success."""
        self._failures = 0
