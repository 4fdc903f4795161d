"""Whether the metadata image of this broker is recent enough to answer as a coordinator.

A broker that is cut off, or was stopped for a while, does not learn that another one coordinates in
its place. Its appends fail, but it would answer heartbeats and offset fetches from an old state. So
it answers only while it holds a lease, which ends before the cluster can count it as dead: half the
session timeout after a moment at which its image was complete.

The metadata store confirms the image. While the store cannot be reached, the other brokers do, if
all of them answer and know no later leader of a coordinator's partition: without its store, a
cluster elects nothing, and its groups go on. The clock runs during a stop of the process, and so
does the lease.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from lakelog.base.errors import KafkaError
from lakelog.metadata.errors import MetadataError
from lakelog.runtime.api import Clock, Tasks, pause

_LEASES_PER_SESSION = 2
_RENEWALS_PER_LEASE = 3
_LATE = 0.6
"""Part of a lease that is left when the store has missed a renewal; the others need some of it."""


class Lease:
    """The lease of this broker, from `start` to `stop`; it holds before, as for a broker alone.

    Args:
        catch_up: returns once the image has every entry that was committed before the call. Raises
            `KafkaError` or `MetadataError`.
        peers_agree: returns whether every other broker answers, and knows no later leader.
        session_timeout_s: after which the cluster counts a silent broker as dead.
    """

    def __init__(
        self,
        catch_up: Callable[[], Awaitable[None]],
        peers_agree: Callable[[], Awaitable[bool]],
        session_timeout_s: float,
        clock: Clock,
        tasks: Tasks,
    ) -> None:
        self._catch_up = catch_up
        self._peers_agree = peers_agree
        self._lease_s = session_timeout_s / _LEASES_PER_SESSION
        self._clock = clock
        self._tasks = tasks
        self._until = float("inf")
        self._running: Sequence[Any] = ()

    @property
    def holds(self) -> bool:
        """Whether no other broker can have taken the place of this one."""
        return self._clock.monotonic() < self._until

    def start(self) -> None:
        """Renew the lease from now on; the image is complete."""
        self._until = self._clock.monotonic() + self._lease_s
        self._running = [
            self._tasks.spawn(self._renew(confirm), name=f"lease by {by}")
            for by, confirm in (("store", self._by_store), ("peers", self._by_peers))
        ]

    def stop(self) -> None:
        """Do not renew it any more."""
        for task in self._running:
            task.cancel()
        self._running = ()

    async def _renew(self, confirm: Callable[[], Awaitable[bool]]) -> None:
        while True:
            await pause(self._tasks, self._lease_s / _RENEWALS_PER_LEASE)
            asked = self._clock.monotonic()
            if await confirm():
                self._until = max(self._until, asked + self._lease_s)

    async def _by_store(self) -> bool:
        try:
            await self._catch_up()
        except (KafkaError, MetadataError):
            return False
        return True

    async def _by_peers(self) -> bool:
        """Ask the others only when the store is late."""
        left = self._until - self._clock.monotonic()
        return left < _LATE * self._lease_s and await self._peers_agree()
