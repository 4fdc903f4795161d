"""The world of one seed with a cluster: brokers, their metadata store, network, faults, clients."""

from __future__ import annotations

from collections.abc import Callable

from doubles.disk import MemoryDisk
from lakelog.metadata.image import MetadataImage
from simulator.brokers.host import DATA, BrokerHost, MetadataPlace
from simulator.checkers.findings import Findings
from simulator.checkers.membership_history import MembershipHistory
from simulator.checkers.offset_history import OffsetHistory
from simulator.checkers.producer_ids import ProducerIds
from simulator.checkers.record_history import RecordHistory
from simulator.clients.context import ClientContext
from simulator.clients.pool import ClientPool
from simulator.cluster.brokers import ClusterBrokers
from simulator.cluster.ensemble import EnsemblePlace, ensemble_of
from simulator.cluster.nemesis import ClusterNemesis
from simulator.cluster.observer import ClusterObserver
from simulator.cluster.plan import BROKERS, SESSION_S, ClusterPlan, cluster_plan_of
from simulator.cluster.shared_file import SharedFile
from simulator.conditions import Conditions
from simulator.engine.clock import SimulatedClock
from simulator.engine.simulator import Simulator
from simulator.machine.machine import Machine
from simulator.network.network import Network

_RECOVERY_S = 15.0
"""How long after a fault a cluster may need until every request succeeds again."""

_DRIFT = 0.02
"""The largest difference between the rates of two monotonic clocks."""


class ClusterWorld:
    """The parts of one seed's world; `plan` is the seed's own unless another one is given."""

    def __init__(self, seed: int, plan: ClusterPlan | None = None) -> None:
        self.plan = plan if plan is not None else cluster_plan_of(seed)
        self.simulator = Simulator(seed)
        loop, stream = self.simulator.loop, self.simulator.random_stream
        self.network = Network(loop, stream("network"), self.simulator.trace, self.simulator.faults)
        self.conditions = Conditions(loop, _RECOVERY_S)
        self.findings = Findings()
        self.records = RecordHistory(self.findings)
        self.records.on_acknowledged = self.conditions.on_acknowledged
        self.offsets = OffsetHistory(self.findings)
        self.offsets.on_acknowledged = self.conditions.on_acknowledged
        self.members = MembershipHistory(self.findings)
        self.producer_ids = ProducerIds(self.conditions, self.plan.faults)
        self.pool = ClientPool(self.network, stream("fates"))
        self.observer = ClusterObserver(
            self.simulator, self.network, self.findings, self.records, self.producer_ids
        )
        self.machines: list[Machine] = []
        self._skews = stream("clocks")
        self.shared = MemoryDisk(SimulatedClock(loop))
        self._place_of = self._new_places()
        self.places: list[MetadataPlace] = []
        """By node id - 1, as the machines."""
        self.hosts: list[BrokerHost] = []
        """The brokers of the cluster, which may change."""
        self.brokers = ClusterBrokers(self.simulator, self.hosts)
        for _ in range(BROKERS):
            self.add_broker()
        self.observer.watch(self.hosts, self.brokers.removed)
        self.records.forgets = self.brokers.forgets_producers
        self.context = ClientContext(
            self.simulator,
            self.network,
            self.plan,
            self.conditions,
            self.findings,
            self.records,
            self.offsets,
            self.members,
            self.producer_ids,
            self.brokers,
        )
        self.nemesis = ClusterNemesis(
            self.simulator, self.network, self.plan, self.conditions, self.hosts, self.pool, self
        )

    @property
    def seed(self) -> int:
        return self.simulator.seed

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
        place = self._place_of(machine)
        host = BrokerHost(
            self.simulator,
            self.network,
            machine,
            place,
            node_id,
            self.plan.settings,
            self.findings,
            self.observer,
        )
        self.machines.append(machine)
        self.places.append(place)
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
        place = self.places[host.node_id - 1]
        if isinstance(place, EnsemblePlace):
            place.wipe()

    def _new_places(self) -> Callable[[Machine], MetadataPlace]:
        """Return what gives a machine the place of its metadata."""
        entry_bytes_max = self.plan.entry_bytes_max
        if self.plan.store == "file":
            shared = SharedFile(self.simulator.loop, self.shared, SESSION_S, entry_bytes_max)
            return lambda _: shared
        ensemble = ensemble_of(self.simulator, self.findings)
        return lambda machine: EnsemblePlace(
            self.simulator, self.network, ensemble, machine, SESSION_S, entry_bytes_max
        )
