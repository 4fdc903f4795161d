"""The world of one seed with a cluster: brokers, their metadata store, network, faults, clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from doubles.disk import MemoryDisk
from lakelog.metadata.image import MetadataImage
from simulator.brokers.host import DATA, BrokerHost, MetadataPlace
from simulator.checkers.laws import Law
from simulator.cluster.brokers import ClusterBrokers
from simulator.cluster.ensemble import EnsemblePlace, ensemble_of
from simulator.cluster.nemesis import ClusterNemesis
from simulator.cluster.observer import ClusterObserver
from simulator.cluster.plan import SESSION_S, ClusterPlan, cluster_plan_of
from simulator.cluster.pulse import Pulse
from simulator.cluster.shared_file import SharedFile
from simulator.engine.clock import SimulatedClock
from simulator.machine.machine import Machine
from simulator.surroundings import Surroundings
from waiting import EventTimeoutError, until

_RECOVERY_S = 15.0
"""How long after a fault a cluster may need until every request succeeds again."""

_POLL_S = 0.1
_HEALING_S = 30.0

_DRIFT = 0.02
"""The largest difference between the rates of two monotonic clocks."""


class ClusterWorld(Surroundings):
    """The parts of one seed's world; `plan` is the seed's own unless another one is given."""

    def __init__(self, seed: int, plan: ClusterPlan | None = None) -> None:
        self.plan = plan if plan is not None else cluster_plan_of(seed)
        super().__init__(seed, self.plan, _RECOVERY_S)
        self.observer = ClusterObserver(
            self.simulator, self.network, self.findings, self.records, self.producer_ids
        )
        self.machines: list[Machine] = []
        self._skews = self.simulator.random_stream("clocks")
        self.shared = MemoryDisk(SimulatedClock(self.simulator.loop))
        self._place_of = self._new_places()
        self.metadata_places: list[MetadataPlace] = []
        """By node id - 1, as the machines."""
        self.hosts: list[BrokerHost] = []
        """The brokers of the cluster, which may change."""
        self.brokers = ClusterBrokers(self.simulator, self.hosts)
        for _ in range(self.plan.brokers):
            self.add_broker()
        self.observer.watch(self.hosts, self.brokers.removed)
        self.records.forgets = self.brokers.forgets_producers
        self.context = self.context_for(self.plan, self.brokers)
        self.pulse = Pulse(self.context, self.brokers, lambda: self.image)
        self.nemesis = ClusterNemesis(
            self.simulator, self.network, self.plan, self.conditions, self.hosts, self.pool, self
        )

    @property
    def homes(self) -> Sequence[ClusterBrokers]:
        """The cluster."""
        return (self.brokers,)

    @property
    def is_ready(self) -> bool:
        return self.brokers.are_unfenced

    async def recover(self) -> None:
        """Bring back the brokers that are down, and wait until every ISR is complete."""
        for host in self.hosts:
            host.slow_threads()
        await asyncio.gather(*(host.bring_back() for host in self.hosts))
        with suppress(EventTimeoutError):
            await until(self._has_healed, _HEALING_S, every_s=_POLL_S)
        self.findings.expect(
            Law.HEALS,
            self.is_healed,
            f"{_HEALING_S} s after the last fault: {self.observer.images.lacking}",
        )

    async def _has_healed(self) -> bool:
        """Start the brokers that have ended because a client unregistered them while fenced."""
        registered = self.image.brokers
        for host in self.hosts:
            if not host.is_running and host.node_id not in registered:
                await host.bring_back()
        return self.is_healed

    @property
    def is_healed(self) -> bool:
        """Whether all brokers run, and every ISR is complete; removed brokers are unregistered."""
        return (
            self.brokers.are_unfenced
            and not self.observer.images.lacking
            and self.brokers.removed.isdisjoint(self.image.brokers)
        )

    @property
    def image(self) -> MetadataImage:
        """The newest metadata image of any broker."""
        return self.observer.images.newest

    @property
    def node_ids_used(self) -> int:
        """How many brokers there have been."""
        return len(self.machines)

    def add_broker(self) -> BrokerHost:
        """Return one more broker, which does not run yet."""
        node_id = len(self.machines) + 1
        machine = Machine(self.simulator, f"broker-{node_id}")
        skews = self._skews
        machine.clock.skew(skews.random() * 1e6, 1.0 + (skews.random() - 0.5) * _DRIFT)
        metadata = self._place_of(machine)
        host = self.host_on(machine, metadata, node_id, self.observer)
        self.machines.append(machine)
        self.metadata_places.append(metadata)
        self.brokers.add(host)
        return host

    def remove_broker(self, host: BrokerHost) -> None:
        """Forget a broker that will not return."""
        self.brokers.remove(host)

    def crash_shared(self) -> None:
        """Lose the unsynced bytes of the brokers' common disk; no process runs."""
        self.shared.crash()

    def wipe(self, host: BrokerHost) -> None:
        """Empty the disk of a broker that is down."""
        assert not host.is_running
        self.observer.on_loss()
        host.disk.remove_tree(DATA)
        host.disk.write_back()
        metadata = self.metadata_places[host.node_id - 1]
        if isinstance(metadata, EnsemblePlace):
            metadata.wipe()

    def _new_places(self) -> Callable[[Machine], MetadataPlace]:
        """Return a function from a machine to the place of its metadata."""
        entry_bytes_max = self.plan.entry_bytes_max
        if self.plan.store == "file":
            shared = SharedFile(self.simulator.loop, self.shared, SESSION_S, entry_bytes_max)
            return lambda _: shared
        ensemble = ensemble_of(self.simulator, self.findings)
        return lambda machine: EnsemblePlace(
            self.simulator, self.network, ensemble, machine, SESSION_S, entry_bytes_max
        )
