"""The world of one seed, built and not yet running: brokers, network, faults, clients, checkers.

The brokers are the production code; the rest is simulated. Several `brokers` share a network; each
has a disk, a clock, metadata and clients of its own. No part imports this module: each is handed
the parts that it needs.
"""

from __future__ import annotations

from collections.abc import Sequence

from simulator.brokers.fleet import Fleet
from simulator.brokers.host import DATA, BrokerHost, MetadataPlace
from simulator.brokers.observer import BrokerObserver
from simulator.brokers.places import OwnPlace
from simulator.checkers.partition_watcher import PartitionWatcher
from simulator.conditions import RECOVERY_S
from simulator.faults.bit_flips import BitFlips
from simulator.faults.lone_nemesis import LoneNemesis
from simulator.machine.machine import Machine
from simulator.plan import COLD_READS, SLOW_DISK, Plan, plan_of
from simulator.surroundings import Surroundings

_COLD = 0.3
_SLOW_THREAD_S_MAX = 0.2


class World(Surroundings):
    """The parts of one seed's world; `plan` is the seed's own unless another one is given."""

    def __init__(self, seed: int, plan: Plan | None = None, *, brokers: int = 1) -> None:
        self.plan = plan if plan is not None else plan_of(seed)
        super().__init__(seed, self.plan, RECOVERY_S)
        self.bit_flips: dict[str, BitFlips] = {}
        self.brokers = Fleet(self._broker(number) for number in range(1, brokers + 1))
        self.hosts = self.brokers.hosts
        self.records.forgets = self.brokers.forgets_producers
        self.context = self.context_for(self.plan, self.brokers)
        self.nemesis = LoneNemesis(
            self.simulator,
            self.network,
            self.plan,
            self.conditions,
            self.hosts,
            self.pool,
            self.bit_flips,
        )

    @property
    def homes(self) -> Sequence[BrokerHost]:
        """Each broker: it is a cluster by itself."""
        return self.hosts

    @property
    def is_ready(self) -> bool:
        return True

    async def recover(self) -> None:
        """Restart all brokers, without flipped bits: one may have taken a partition offline."""
        for host in self.hosts:
            host.kill()
            flips = self.bit_flips[host.name]
            flips.repair(self.simulator.random_stream("repair"))
            await host.bring_back()
            if flips.repair_others(host.usable()):
                host.kill()
                await host.bring_back()

    def _broker(self, node_id: int) -> BrokerHost:
        machine = Machine(self.simulator, f"broker-{node_id}")
        flips = BitFlips(machine.disk, DATA, self.records, self.plan.index_interval)
        self.bit_flips[machine.name] = flips
        host = self.host_on(machine, self._place(machine), node_id, self._observer(flips))
        if "metadata" in self.plan.faults:
            host.metadata_unknown_percent = 20
        if COLD_READS in self.plan.faults:
            host.disk.cold = _COLD
        if SLOW_DISK in self.plan.faults:
            host.thread_s_max = _SLOW_THREAD_S_MAX
        if "helper death" in self.plan.faults:
            host.helper_death = 0.2
        return host

    def _place(self, machine: Machine) -> MetadataPlace:
        """Return the place of a broker's metadata."""
        return OwnPlace(machine.disk)

    def _observer(self, flips: BitFlips) -> BrokerObserver:
        return BrokerObserver(
            self.simulator,
            self.plan,
            self.findings,
            self.conditions,
            self,
            PartitionWatcher(self.records, flips),
            flips,
            on_cut=self.pool.reset_dead_connections,
            owns=lambda host, group: self.brokers.home_of(group) is host,
        )
