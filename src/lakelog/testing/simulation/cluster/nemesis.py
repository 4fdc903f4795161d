"""The nemesis of a cluster: it injects the faults of the plan at random times.

Deaths come one after another, and so do the other faults: a broker may die during a cut.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from lakelog.testing.simulation.brokers.host import BrokerHost
from lakelog.testing.simulation.clients.pool import ClientPool
from lakelog.testing.simulation.cluster.ensemble import STORE
from lakelog.testing.simulation.cluster.plan import DEATHS, SESSION_S, ClusterPlan
from lakelog.testing.simulation.conditions import Conditions
from lakelog.testing.simulation.engine.simulator import Simulator
from lakelog.testing.simulation.network.network import Network

_AT_AN_ACKNOWLEDGEMENT = 0.7
"""Chance that a power failure waits for an acknowledgement."""
_IN_A_TRANSACTION = 0.5
"""Chance that the controller dies between the entries of one change."""


class Disks(Protocol):
    """The disks of a cluster, and whether each partition can do without one of them."""

    @property
    def is_healed(self) -> bool:
        """Whether all brokers run, and every ISR is complete."""

    def crash_shared(self) -> None:
        """Lose the unsynced bytes of the brokers' common disk; no process runs."""

    def wipe(self, host: BrokerHost) -> None:
        """Empty the disk of a broker that is down."""


class ClusterNemesis:
    """Injects the faults of a plan; `execution` ends them."""

    def __init__(
        self,
        simulator: Simulator,
        network: Network,
        plan: ClusterPlan,
        conditions: Conditions,
        hosts: Sequence[BrokerHost],
        pool: ClientPool,
        disks: Disks,
    ) -> None:
        self._simulator = simulator
        self._network = network
        self._plan = plan
        self._conditions = conditions
        self._hosts = hosts
        self._pool = pool
        self._disks = disks
        self._rng: random.Random = simulator.random_stream("nemesis")
        injectors: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            "kill": self._kill,
            "kill at a write": self._kill_at_a_write,
            "stop": self._stop,
            "controller": self._kill_controller,
            "power": self._power,
            "power of all": self._power_of_all,
            "wipe": self._wipe,
            "pause": self._pause,
            "cut brokers": self._cut_brokers,
            "cut store": self._cut_store,
            "cut clients": self._cut_clients,
            "reset": self._reset,
            "slow network": self._slow,
            "clock": self._clock,
            "client crash": self._crash_client,
        }
        self._injectors = {
            name: injector for name, injector in injectors.items() if name in plan.faults
        }

    async def run(self) -> None:
        """Inject faults for the plan's time; if the plan kills brokers, until one has died."""
        end = self._simulator.loop.time() + self._plan.seconds
        deaths = [name for name in self._injectors if name in DEATHS]
        others = [name for name in self._injectors if name not in DEATHS]
        # Two sequences of faults: a cut or a pause may go with a death.
        await asyncio.gather(
            self._inject(deaths, end, at_least_one=True), self._inject(others, end)
        )

    async def _inject(self, names: list[str], end: float, *, at_least_one: bool = False) -> None:
        missing = at_least_one
        while names and (self._simulator.loop.time() < end or missing):
            await asyncio.sleep(0.5 + self._rng.random() * 4.0)
            missing = False
            await self._do(self._rng.choice(names))

    async def _do(self, name: str) -> None:
        self._simulator.trace("fault", name)
        self._simulator.faults[name] += 1
        with self._conditions.disturbing():
            await self._injectors[name]()

    def _some_broker(self) -> BrokerHost:
        return self._rng.choice(self._hosts)

    # Deaths

    async def _kill(self) -> None:
        host = self._some_broker()
        host.kill()
        await self._come_back(host)

    async def _kill_at_a_write(self) -> None:
        """Kill a broker at one of its next operations on disk."""
        host = self._some_broker()
        if not host.is_running:
            return
        host.disk.stop_at = host.disk.steps + self._rng.randrange(60)
        await host.wait_for_death(10.0)
        host.kill()
        await self._come_back(host)

    async def _stop(self) -> None:
        host = self._some_broker()
        await host.stop()
        await self._come_back(host)

    async def _kill_controller(self) -> None:
        """Kill a broker, and then the controller while it writes the consequences.

        Or kill the controller between the entries of a transaction of its metadata.
        """
        victim = self._some_broker()
        controller = self._controller()
        if controller is None:
            return
        in_transaction = self._rng.random() < _IN_A_TRANSACTION
        if victim is not controller and not in_transaction:
            victim.kill()
        end = _end(controller) + self._rng.randint(1, 3)
        until = self._simulator.loop.time() + 2 * SESSION_S
        while self._simulator.loop.time() < until and not (  # noqa: ASYNC110 - an image has no event
            _is_pending(controller) if in_transaction else _end(controller) >= end
        ):
            await asyncio.sleep(0.000_1)
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
        host = self._some_broker()
        await self._await_acknowledgement()
        if self._plan.is_durable or self._disks.is_healed:
            await self._without_power([host])
        else:
            # The last replica with all records may not lose them: no replica could lead then.
            host.kill()
            await self._come_back(host)

    async def _power_of_all(self) -> None:
        await self._await_acknowledgement()
        await self._without_power(self._hosts, and_then=self._disks.crash_shared)

    async def _await_acknowledgement(self) -> None:
        if self._rng.random() < _AT_AN_ACKNOWLEDGEMENT:
            await self._conditions.next_acknowledgement(5.0)

    async def _without_power(
        self, hosts: Sequence[BrokerHost], and_then: Callable[[], object] = tuple
    ) -> None:
        for host in hosts:
            self._network.down.add(host.name)
            host.kill(power=True, torn=self._rng.random() < 0.7)
        and_then()
        await asyncio.sleep(self._rng.random() * 4)
        self._network.down.difference_update(host.name for host in hosts)
        await asyncio.gather(*(self._come_back(host) for host in hosts))

    async def _wipe(self) -> None:
        """Replace the disk of a broker by an empty one."""
        host = self._some_broker()
        is_spare = self._disks.is_healed
        host.kill()
        if is_spare:
            self._disks.wipe(host)
        await self._come_back(host)

    async def _come_back(self, host: BrokerHost) -> None:
        await asyncio.sleep(self._rng.random() * 2 * SESSION_S)
        await host.bring_back()

    # Faults of the network and of time

    async def _pause(self) -> None:
        """Stop and continue a process, for half a session timeout to three."""
        host = self._some_broker()
        process = host.process
        host.pause()
        await asyncio.sleep(SESSION_S * (0.5 + 2.5 * self._rng.random()))
        if host.process is process:
            host.resume()

    async def _cut_brokers(self) -> None:
        """Cut one broker off from another, or from both others."""
        host = self._some_broker()
        others = [other for other in self._hosts if other is not host]
        if self._rng.random() < 0.5:
            others = [self._rng.choice(others)]
        await self._cut([(host.name, other.name) for other in others])

    async def _cut_store(self) -> None:
        await self._cut([(self._some_broker().name, STORE)])

    async def _cut_clients(self) -> None:
        host = self._some_broker()
        clients = [client for client in self._pool.clients if self._rng.random() < 0.5]
        await self._cut([(host.name, client.name) for client in clients])

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

    async def _reset(self) -> None:
        host = self._some_broker()
        sockets = host.process.sockets if host.process is not None else []
        for socket in list(sockets):
            if self._rng.random() < 0.4:
                self._network.reset(socket)

    async def _slow(self) -> None:
        self._network.slow_down()
        await asyncio.sleep(1 + self._rng.random() * 5)
        self._network.restore_speed()

    async def _clock(self) -> None:
        clock = self._some_broker().clock
        self._conditions.leapt_at = self._simulator.loop.time()
        clock.leap(self._rng.choice((-1, 1)) * self._rng.choice((50, 5_000, 600_000)))

    async def _crash_client(self) -> None:
        if self._pool.clients:
            self._pool.crash(self._rng.randrange(len(self._pool.clients)))


def _is_pending(host: BrokerHost) -> bool:
    """Return whether a transaction is pending in the broker's metadata image, or it is down."""
    return host.server is None or host.server.broker.metadata.image.pending is not None


def _end(host: BrokerHost) -> int:
    """Return the end of the broker's metadata image; a large number if it is down."""
    return 1 << 60 if host.server is None else host.server.broker.metadata.image.end
