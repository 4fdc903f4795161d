"""Brokers that this one does not fence yet, although they are dead or silent.

A broker that does not reach the store asks the others whether its coordinators have successors
(`lakelog.server.coordinators.lease`). An answer counts for a part of a session, so a broker that
has answered fences it only afterwards: the former coordinator answers no more when its successor
begins. All brokers make such grants, because any of them may be the next controller. A broker
that has been found dead gets no further one, and so is fenced when the last one is over.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakelog.runtime.api import Clock

GRANT_PER_SESSION = 1 / 3
"""How long the answer of another broker counts, as a part of a session."""
_DRIFT = 1.1
"""The clocks of brokers drift."""


class LeaseGrants:
    """The lease grants of one process; a restarted process does not know them."""

    def __init__(self, session_timeout_s: float, clock: Clock) -> None:
        self._length_s = session_timeout_s * GRANT_PER_SESSION * _DRIFT
        self._clock = clock
        self._until: dict[int, float] = {}
        self._dead: frozenset[int] = frozenset()

    def give(self, broker_id: int) -> bool:
        """Grant a lease: do not fence a broker for a while; return false if it has been found
        dead."""
        if broker_id in self._dead:
            return False
        self._until[broker_id] = self._clock.monotonic() + self._length_s
        return True

    def release(self, broker_id: int) -> bool:
        """Forget the lease granted to a broker, whose process has ended; return whether there was
        one."""
        return self._until.pop(broker_id, None) is not None

    def divide(self, dead: Mapping[int, int]) -> tuple[dict[int, int], float | None]:
        """Return which of the dead brokers may be fenced now, and in how many seconds the next one.

        dead: all brokers that are dead for the store, or silent, with their epochs.
        """
        self._dead, now = frozenset(dead), self._clock.monotonic()
        self._until = {broker: until for broker, until in self._until.items() if until > now}
        due = {broker: epoch for broker, epoch in dead.items() if broker not in self._until}
        waiting = [self._until[broker] - now for broker in dead if broker not in due]
        return due, min(waiting, default=None)
