"""What all worlds have: time, network, clients and their histories, brokers and a nemesis."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.brokers.host import BrokerHost, HostObserver, MetadataPlace
from simulator.checkers.findings import Findings
from simulator.checkers.membership_history import MembershipHistory
from simulator.checkers.offset_history import OffsetHistory
from simulator.checkers.producer_ids import ProducerIds
from simulator.checkers.record_history import RecordHistory
from simulator.clients.context import Brokers, ClientContext
from simulator.clients.pool import ClientPool
from simulator.cluster.pulse import Pulse
from simulator.conditions import Conditions
from simulator.engine.simulator import Simulator
from simulator.faults.nemesis import Nemesis
from simulator.machine.machine import Machine
from simulator.network.network import Network
from simulator.plan import Plan
from simulator.workloads import Home


class Surroundings:
    """The parts of one seed's world; a subclass adds the brokers, and how they recover.

    Args:
        recovery_s: as of `Conditions`.
    """

    hosts: Sequence[BrokerHost]
    context: ClientContext
    nemesis: Nemesis
    pulse: Pulse | None = None
    """The client that no fault touches."""

    def __init__(self, seed: int, plan: Plan, recovery_s: float) -> None:
        self._settings = plan.settings
        self.simulator = Simulator(seed)
        loop, stream = self.simulator.loop, self.simulator.random_stream
        self.network = Network(loop, stream("network"), self.simulator.trace, self.simulator.faults)
        self.conditions = Conditions(loop, recovery_s)
        self.findings = Findings()
        self.records = RecordHistory(self.findings)
        self.records.on_acknowledged = self.conditions.on_acknowledged
        self.offsets = OffsetHistory(self.findings)
        self.offsets.on_acknowledged = self.conditions.on_acknowledged
        self.members = MembershipHistory(self.findings)
        self.producer_ids = ProducerIds(self.conditions, plan.faults)
        self.pool = ClientPool(self.network, stream("fates"))

    @property
    def seed(self) -> int:
        return self.simulator.seed

    @property
    def homes(self) -> Sequence[Home]:
        """The brokers or clusters that have clients of their own."""
        raise NotImplementedError

    @property
    def is_ready(self) -> bool:
        """Whether all brokers serve."""
        raise NotImplementedError

    async def recover(self) -> None:
        """Have all brokers serve again, after the end of all faults."""
        raise NotImplementedError

    def host_on(
        self, machine: Machine, metadata: MetadataPlace, node_id: int, observer: HostObserver
    ) -> BrokerHost:
        """Return a broker on a machine, which does not run yet."""
        return BrokerHost(
            self.simulator,
            self.network,
            machine,
            metadata,
            node_id,
            self._settings,
            self.findings,
            observer,
        )

    def context_for(self, plan: Plan, brokers: Brokers) -> ClientContext:
        """Return the surroundings of clients of these brokers."""
        return ClientContext(
            self.simulator,
            self.network,
            plan,
            self.conditions,
            self.findings,
            self.records,
            self.offsets,
            self.members,
            self.producer_ids,
            brokers,
        )
