"""The nemesis of a cluster: it injects one fault of the plan after another, at random times."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from lakelog.testing.simulation.brokers.host import BrokerHost
from lakelog.testing.simulation.clients.pool import ClientPool
from lakelog.testing.simulation.cluster.plan import DEATHS, ClusterPlan
from lakelog.testing.simulation.conditions import Conditions
from lakelog.testing.simulation.engine.simulator import Simulator
from lakelog.testing.simulation.network.network import Network


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
    ) -> None:
        self._simulator = simulator
        self._network = network
        self._plan = plan
        self._conditions = conditions
        self._hosts = hosts
        self._pool = pool
        self._rng: random.Random = simulator.random_stream("nemesis")
        injectors: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            "kill": self._kill,
        }
        self._injectors = {
            name: injector for name, injector in injectors.items() if name in plan.faults
        }

    async def run(self) -> None:
        """Inject faults for the plan's time; if the plan kills brokers, until one has died."""
        end = self._simulator.loop.time() + self._plan.seconds
        deaths = [name for name in self._injectors if name in DEATHS]
        missing = bool(deaths)
        while self._simulator.loop.time() < end or missing:
            await asyncio.sleep(0.5 + self._rng.random() * 4.0)
            if self._injectors:
                is_due = missing and self._simulator.loop.time() >= end
                name = self._rng.choice(deaths if is_due else list(self._injectors))
                missing = missing and name not in DEATHS
                await self._do(name)

    async def _do(self, name: str) -> None:
        self._simulator.trace("fault", name)
        self._simulator.faults[name] += 1
        with self._conditions.disturbing():
            await self._injectors[name]()

    def _some_broker(self) -> BrokerHost:
        return self._rng.choice(self._hosts)

    async def _kill(self) -> None:
        host = self._some_broker()
        host.kill()
        await self._come_back(host)

    async def _come_back(self, host: BrokerHost) -> None:
        await asyncio.sleep(self._rng.random() * 6)
        await host.bring_back()
