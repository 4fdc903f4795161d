"""How many new connections are accepted in a second (`max.connection.creation.rate`)."""

from __future__ import annotations

from lakelog.runtime.api import Clock


class AcceptRate:
    """One for all listeners: as many new connections a second as allowed, after a pause at once.

    Whoever comes too early waits to be accepted; nobody is refused for it (KIP-612).
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._allowance = 0.0
        self._since = -1.0

    def delay_s(self, per_second: int) -> float:
        """0 if another one may be accepted now."""
        now = self._clock.monotonic()
        earned = (now - self._since) * per_second if self._since >= 0 else per_second
        self._allowance, self._since = min(per_second, self._allowance + earned), now
        return 0.0 if self._allowance >= 1 else (1 - self._allowance) / max(per_second, 1)

    def take(self) -> None:
        self._allowance -= 1
