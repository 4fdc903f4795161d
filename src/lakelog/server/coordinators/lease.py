"""Whether the metadata image of this broker is recent enough to answer as a coordinator.

A broker that is cut off, or was stopped for a while, does not learn that another one coordinates in
its place. Its appends fail, but it would answer heartbeats and offset fetches from an old state. So
it answers only while it holds a lease, which ends before the cluster can count it as dead: half the
session timeout after a moment at which its image was complete, and before a session timeout after
its last heartbeat that the others can see, even if it still reads the metadata. It ends earlier
after the last call that the controller has answered: a broker that the controller does not reach,
and that runs, is fenced before its session ends.

The metadata store confirms the image. While the store cannot be reached, the other brokers do, if
all of them answer and know no later leader of a coordinator's partition: without its store, a
cluster elects nothing, and its groups go on. If only this broker cannot reach the store, the others
may elect soon, so their grants count for a shorter time, in which they do not fence this broker
(`lakelog.server.controller.lease_grants`). It ends at once when one of them knows a later leader.
The clock runs during a stop of the process, and so does the lease.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from lakelog.base.errors import KafkaError
from lakelog.base.events import FailingTask
from lakelog.metadata.errors import MetadataError
from lakelog.runtime.api import Clock, Tasks, pause
from lakelog.server.controller.lease_grants import GRANT_PER_SESSION
from lakelog.server.coordinators.later_leaders import Agreement
from lakelog.server.inter_broker.silence import LEASE_PERCENT

logger = logging.getLogger(__name__)

_LEASES_PER_SESSION = 2
_UNSEEN_MAX = 0.9
"""Part of a session after the last visible heartbeat; the clocks of brokers drift."""
_CONTACT_MAX = LEASE_PERCENT / 100
"""Part of a session after the last call that the controller has answered."""
_RENEWALS_PER_LEASE = 3
_PAUSE_MIN = 0.3
"""Part of the time between two questions that is left after a late answer."""
_LATE = 0.6
"""Part of a lease that is left when the store has missed a renewal; the others need some of it."""


class Lease:
    """The lease of this broker, from `start` to `stop`; it holds before, as for a broker alone.

    Args:
        catch_up: returns once the image has every entry that was committed before the call. Raises
            `KafkaError` or `MetadataError`.
        heartbeat_s: returns when the last heartbeat was sent that other brokers can see.
        contact_s: returns when the last call began that the controller has answered.
        ask_peers: asks all other brokers for later leaders.
        session_timeout_s: after which the cluster counts a silent broker as dead.
    """

    def __init__(
        self,
        catch_up: Callable[[], Awaitable[None]],
        heartbeat_s: Callable[[], float],
        contact_s: Callable[[], float],
        ask_peers: Callable[[], Awaitable[Agreement]],
        session_timeout_s: float,
        clock: Clock,
        tasks: Tasks,
    ) -> None:
        self._catch_up = catch_up
        self._heartbeat_s = heartbeat_s
        self._contact_s = contact_s
        self._ask_peers = ask_peers
        self._session_s = session_timeout_s
        self._lease_s = session_timeout_s / _LEASES_PER_SESSION
        self._clock = clock
        self._tasks = tasks
        self._until = float("inf")
        self._denied_s = float("-inf")
        """When another broker knew a later leader; older questions count no more."""
        self._running: Sequence[Any] = ()

    def holds(self) -> bool:
        """Return whether no other broker can have taken the place of this one."""
        return self._clock.monotonic() < self._until

    def start(self) -> None:
        """Renew the lease from now on; the image is complete."""
        if self._until == float("inf"):  # the controller may have denied it already
            self._until = self._clock.monotonic() + self._lease_s
        self._running = [
            self._tasks.spawn(self._renew(limit), name=f"lease by {by}")
            for by, limit in (("store", self._by_store), ("peers", self._by_peers))
        ]

    def stop(self) -> None:
        """Do not renew it any more."""
        for task in self._running:
            task.cancel()
        self._running = ()

    def deny(self) -> None:
        """End it: the controller may replace this broker soon, although it answers its calls."""
        self._denied_s = self._until = self._clock.monotonic()

    async def _renew(self, limit: Callable[[float], Awaitable[float]]) -> None:
        """Extend the lease to `limit`, which gets the time of the question."""
        task = FailingTask(logger, "the renewal of the lease")
        every_s, asked_s = self._lease_s / _RENEWALS_PER_LEASE, self._clock.monotonic()
        while True:
            due_s = asked_s + every_s - self._clock.monotonic()
            await pause(self._tasks, max(every_s * _PAUSE_MIN, due_s))
            asked_s = self._clock.monotonic()
            try:
                until = await limit(asked_s)
            except Exception as bug:  # noqa: BLE001 - without a lease no coordinator answers again
                task.failed(bug)
                continue
            task.succeeded()
            if asked_s > self._denied_s:
                self._until = max(self._until, until)

    async def _by_store(self, asked_s: float) -> float:
        try:
            await self._catch_up()
        except (KafkaError, MetadataError):
            return asked_s
        # Until then no broker counts this one as dead.
        counted = self._heartbeat_s() + _UNSEEN_MAX * self._session_s
        seen = self._contact_s() + _CONTACT_MAX * self._session_s
        return min(asked_s + self._lease_s, counted, seen)

    async def _by_peers(self, asked_s: float) -> float:
        """Ask the others only when the store is late."""
        if self._until - asked_s >= _LATE * self._lease_s:
            return asked_s
        answer = await self._ask_peers()
        if answer is Agreement.DENIED:
            self.deny()
        agreed = answer is Agreement.FULL
        return asked_s + self._session_s * GRANT_PER_SESSION if agreed else asked_s
