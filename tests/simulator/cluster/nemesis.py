"""The nemesis of a cluster: it injects the faults of the plan at random times.

Deaths come one after another, and so do faults of the network, and faults of machines: a broker may
die during a cut, while the disk of another one is full.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from lakelog.metadata.image import MetadataImage
from simulator.brokers.host import BrokerHost
from simulator.clients.pool import ClientPool
from simulator.cluster.control_schedules import ControlSchedules
from simulator.cluster.ensemble import STORE
from simulator.cluster.late_bytes import LateBytes, sent_between
from simulator.cluster.leader_epoch_schedules import LeaderEpochSchedules
from simulator.cluster.machine_faults import MachineFaults
from simulator.cluster.member_changes import MemberChanges, Members
from simulator.cluster.plan import (
    DEATHS,
    FAULTS,
    OF_MACHINES,
    OF_MEMBERS,
    SESSION_S,
    SURVIVABLE,
    ClusterPlan,
)
from simulator.cluster.schedules import Schedules
from simulator.conditions import Conditions
from simulator.engine.simulator import Simulator
from simulator.faults.broker_faults import Injector
from simulator.faults.nemesis import Nemesis
from simulator.network.network import Network
from waiting import EventTimeoutError, until

_IN_A_TRANSACTION = 0.5
"""Chance that the controller dies between the entries of one change."""


class Cluster(Members, Protocol):
    """The disks and the brokers of a cluster, and its metadata."""

    @property
    def image(self) -> MetadataImage:
        """The newest metadata image of any broker."""

    def crash_shared(self) -> None:
        """Lose the unsynced bytes of the brokers' common disk; no process runs."""

    def wipe(self, host: BrokerHost) -> None:
        """Empty the disk of a broker that is down."""


class ClusterNemesis(Nemesis):
    """Injects the faults of a plan; `execution` ends them."""

    def __init__(
        self,
        simulator: Simulator,
        network: Network,
        plan: ClusterPlan,
        conditions: Conditions,
        hosts: Sequence[BrokerHost],
        pool: ClientPool,
        cluster: Cluster,
    ) -> None:
        super().__init__(simulator, network, plan, conditions, hosts, pool)
        self._plan = plan
        self._cluster = cluster
        schedules: dict[str, Injector] = {}
        for kind in (Schedules, ControlSchedules, LeaderEpochSchedules, MachineFaults):
            scene = kind(
                simulator,
                network,
                hosts,
                self._faults,
                self._rng,
                lambda: plan.is_durable or cluster.is_healed,
                lambda: cluster.image,
                has_ensemble=plan.store == "zookeeper",
            )
            schedules |= scene.injectors
        own: dict[str, Injector] = {
            "controller": self._kill_controller,
            "power": self._power,
            "power of all": self._power_of_all,
            "wipe": self._wipe,
            "pause": self._pause,
            "cut brokers": self._cut_brokers,
            "cut store": self._cut_store,
            "cut clients": self._cut_clients,
            "late requests": self._late_requests,
        }
        members = MemberChanges(cluster, hosts, conditions, self._rng)
        self._choose(plan.faults, FAULTS, own | schedules | members.injectors, OF_MEMBERS)

    @property
    def _sequences(self) -> list[list[str]]:
        """Sequences beside each other: a cut or a full disk may go with a death."""
        deadly = [name for name in self._names if name in (*DEATHS, *SURVIVABLE)]
        of_machines = [name for name in self._names if name in OF_MACHINES]
        of_members = [name for name in self._names if name in OF_MEMBERS]
        others = [name for name in self._names if name not in (*deadly, *of_machines, *of_members)]
        # A schedule is alone with deaths: with other ones its situation would not arise.
        return [deadly, others, of_machines, of_members]

    async def _inject(self, names: list[str], end: float) -> None:
        if names:
            await super()._inject(names, end)

    # Deaths

    async def _kill_controller(self) -> None:
        """Kill a broker, and then the controller while it writes the consequences.

        Or kill the controller between the entries of a transaction of its metadata.
        """
        victim = self._faults.some_broker()
        controller = self._controller()
        if controller is None:
            return
        in_transaction = self._rng.random() < _IN_A_TRANSACTION
        if victim is not controller and not in_transaction:
            victim.kill()
        end = _end(controller) + self._rng.randint(1, 3)

        def is_there() -> bool:
            return _is_pending(controller) if in_transaction else _end(controller) >= end

        with suppress(EventTimeoutError):
            await until(is_there, 2 * SESSION_S, every_s=0.000_1)
        controller.kill()
        await asyncio.gather(self._come_back(victim), self._come_back(controller))

    def _controller(self) -> BrokerHost | None:
        """Return a running broker that is the controller, as far as it knows."""
        for host in self._hosts:
            server = host.server
            if server is not None and server.broker.metadata.controller_id == host.node_id:
                return host
        return None

    async def _power(self) -> None:
        """Cut the power of one broker, often right after an acknowledgement."""
        host = self._faults.some_broker()
        await self._faults.await_acknowledgement()
        if self._plan.is_durable or self._cluster.is_healed:
            await self._without_power([host])
        else:
            # The last replica with all records may not lose them: no replica could lead then.
            host.kill()
            await self._come_back(host)

    async def _power_of_all(self) -> None:
        await self._faults.await_acknowledgement()
        await self._without_power(list(self._hosts), and_then=self._cluster.crash_shared)

    async def _without_power(
        self, hosts: Sequence[BrokerHost], and_then: Callable[[], object] = tuple
    ) -> None:
        for host in hosts:
            self._faults.cut_power(host)
        and_then()
        await asyncio.sleep(self._rng.random() * 4)
        self._network.down.difference_update(host.name for host in hosts)
        await asyncio.gather(*(self._come_back(host) for host in hosts))

    async def _wipe(self) -> None:
        """Replace the disk of a broker by an empty one."""
        host = self._faults.some_broker()
        is_spare = self._cluster.is_healed
        host.kill()
        if is_spare:
            self._cluster.wipe(host)
        await self._come_back(host)

    async def _come_back(self, host: BrokerHost) -> None:
        await asyncio.sleep(self._rng.random() * 2 * SESSION_S)
        await host.bring_back()

    # Faults of the network and of time

    async def _pause(self) -> None:
        """Stop and continue a process, for half a session timeout to three."""
        host = self._faults.some_broker()
        process = host.process
        host.pause()
        await asyncio.sleep(SESSION_S * (0.5 + 2.5 * self._rng.random()))
        if host.process is process:
            host.resume()

    async def _cut_brokers(self) -> None:
        """Cut one broker off from another, or from both others."""
        host = self._faults.some_broker()
        others = [other for other in self._hosts if other is not host]
        if self._rng.random() < 0.5:
            others = [self._rng.choice(others)]
        await self._cut([(host.name, other.name) for other in others])

    async def _cut_store(self) -> None:
        await self._cut([(self._faults.some_broker().name, STORE)])

    async def _cut_clients(self) -> None:
        host = self._faults.some_broker()
        clients = [client for client in self._pool.clients if self._rng.random() < 0.5]
        await self._cut([(host.name, client.name) for client in clients])

    async def _late_requests(self) -> None:
        """Have a broker give up its connections to another one, which gets the requests later."""
        host, other = self._rng.sample(list(self._hosts), 2)
        with LateBytes(self._network, sent_between(host, other)) as late:
            await asyncio.sleep(self._rng.random())
        late.give_up()
        await asyncio.sleep(self._rng.random() * SESSION_S)
        late.release()

    async def _cut(self, pairs: list[tuple[str, str]]) -> None:
        """Cut pairs of hosts in both directions, or in one of them."""
        both = self._rng.random() < 0.5
        ways: list[tuple[str, str]] = []
        for here, there in pairs:
            found = [(here, there), (there, here)]
            ways += found if both else [self._rng.choice(found)]
        for way in ways:
            self._network.cut(*way)
        await asyncio.sleep(self._rng.random() * 3 * SESSION_S)
        self._network.mend(ways)


def _is_pending(host: BrokerHost) -> bool:
    """Return whether a transaction is pending in the broker's metadata image, or it is down."""
    return host.server is None or host.server.broker.metadata.image.pending is not None


def _end(host: BrokerHost) -> int:
    """Return the end of the broker's metadata image; a large number if it is down."""
    return 1 << 60 if host.server is None else host.server.broker.metadata.image.end
