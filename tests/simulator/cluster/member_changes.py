"""Changes of a cluster's members: a broker joins it, another one is removed for good.

They overlap with deaths, and with faults of the network and of machines.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from simulator.brokers.host import BrokerHost
from simulator.cluster.plan import BROKERS, BROKERS_MAX, NEW_BROKER, REMOVED_BROKER, SESSION_S
from simulator.conditions import Conditions
from simulator.faults.broker_faults import Injector
from waiting import EventTimeoutError, until

_WORKS_S = 3.0
"""How long a new broker works before its sequence of faults continues, up to twice as long."""
_SPARE_S = 8.0
"""How long to wait until some broker can be spared."""
_POLL_S = 0.1


class Members(Protocol):
    """The brokers of a cluster, which may change."""

    @property
    def is_healed(self) -> bool:
        """Whether all brokers run, and every ISR is complete."""

    @property
    def node_ids_used(self) -> int:
        """How many brokers there have been."""

    def add_broker(self) -> BrokerHost:
        """Return one more broker, which does not run yet."""

    def remove_broker(self, host: BrokerHost) -> None:
        """Forget a broker that will not return."""


class MemberChanges:
    """The changes of a plan, as injectors of its nemesis."""

    def __init__(
        self,
        members: Members,
        hosts: Sequence[BrokerHost],
        conditions: Conditions,
        rng: random.Random,
    ) -> None:
        self._members = members
        self._hosts = hosts
        self._conditions = conditions
        self._rng = rng
        self._has_removed = False

    @property
    def injectors(self) -> dict[str, Injector]:
        """By the names of the faults in a plan."""
        return {NEW_BROKER: self._new_broker, REMOVED_BROKER: self._remove_broker}

    async def _new_broker(self) -> None:
        """Start one more broker, as long as the world has machines."""
        if self._members.node_ids_used < BROKERS_MAX:
            await self._members.add_broker().bring_back()
            await asyncio.sleep(_WORKS_S * (1 + self._rng.random()))

    async def _remove_broker(self) -> None:
        """End one broker for good, often in order, once the others have all its records.

        As many remain as at the begin; if it has not grown yet, the cluster does so first. A client
        unregisters the broker. Without a second one each partition keeps min.insync.replicas.
        """
        if self._has_removed:
            return
        if len(self._hosts) <= BROKERS:
            await self._new_broker()
        with suppress(EventTimeoutError):
            await until(lambda: self._members.is_healed, _SPARE_S, every_s=_POLL_S)
        if len(self._hosts) <= BROKERS or not self._members.is_healed:
            return
        host = self._rng.choice(self._hosts)
        host.is_removed = self._has_removed = True
        with self._conditions.disturbing():
            if self._rng.random() < 0.5:
                await host.stop()
            host.kill()
            self._members.remove_broker(host)
            await asyncio.sleep(SESSION_S)
