"""The rate at which new connections are accepted (`max.connection.creation.rate`)."""

from __future__ import annotations

from lakelog.runtime.api import Clock


class AcceptRate:
    """One rate for all listeners; a pause earns a second's worth of connections at once.

    A client that connects too early waits to be accepted; none is rejected (KIP-612).
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._allowance = 0.0
        self._since = -1.0

    def delay_s(self, per_second: int) -> float:
        """Return the seconds until another connection may be accepted; 0 if it may be now."""
        now = self._clock.monotonic()
        # A broker that has just started has earned a whole second, like after a pause.
        earned = (now - self._since) * per_second if self._since >= 0 else per_second
        self._allowance, self._since = min(per_second, self._allowance + earned), now
        return 0.0 if self._allowance >= 1 else (1 - self._allowance) / max(per_second, 1)

    def take(self) -> None:
        """Count a connection that was accepted."""
        self._allowance -= 1
