"""The nemesis: it injects the faults of a plan at random times. The name is Jepsen's."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence

from simulator.brokers.host import BrokerHost
from simulator.clients.pool import ClientPool
from simulator.conditions import Conditions
from simulator.engine.simulator import Simulator
from simulator.engine.tasks import together
from simulator.faults.broker_faults import BrokerFaults, Injector
from simulator.faults.injections import Injections
from simulator.network.network import Network
from simulator.plan import Plan


class Nemesis:
    """Injects the faults of every world and of its subclass; `execution` ends them.

    A subclass says how a dead broker comes back.
    """

    def __init__(
        self,
        simulator: Simulator,
        network: Network,
        plan: Plan,
        conditions: Conditions,
        hosts: Sequence[BrokerHost],
        pool: ClientPool,
    ) -> None:
        self._simulator = simulator
        self._network = network
        self._conditions = conditions
        self._seconds = plan.seconds
        self._hosts = hosts
        self._pool = pool
        self._rng: random.Random = simulator.random_stream("nemesis")
        self._faults = BrokerFaults(
            simulator, network, conditions, hosts, pool, self._rng, self._come_back
        )

    def _choose(
        self,
        faults: Collection[str],
        order: Sequence[str],
        own: dict[str, Injector],
        harmless: Collection[str],
    ) -> None:
        """Choose among these faults of a plan.

        own: the injectors of the subclass, by the names of faults.
        """
        injectors = self._faults.injectors | own
        # In the order of the plan's list: a choice among them then depends on the plan alone.
        self._names = [name for name in order if name in faults and name in injectors]
        self._injections = Injections(
            self._simulator, self._conditions, self._rng, injectors, harmless=harmless
        )

    @property
    def _sequences(self) -> list[list[str]]:
        """Names of faults; the faults of one list happen one after another."""
        return [self._names]

    async def run(self) -> None:
        """Inject faults for the plan's time; if the plan kills brokers, until one has died."""
        end = self._simulator.loop.time() + self._seconds
        await together(*(self._inject(names, end) for names in self._sequences))

    async def _inject(self, names: list[str], end: float) -> None:
        await self._injections.run(names, end)

    async def _come_back(self, host: BrokerHost) -> None:
        raise NotImplementedError
