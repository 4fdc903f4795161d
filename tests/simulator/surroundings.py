"""What all worlds have beside their brokers: time, network, clients, and the histories of these."""

from __future__ import annotations

from simulator.checkers.findings import Findings
from simulator.checkers.membership_history import MembershipHistory
from simulator.checkers.offset_history import OffsetHistory
from simulator.checkers.producer_ids import ProducerIds
from simulator.checkers.record_history import RecordHistory
from simulator.clients.context import Brokers, ClientContext
from simulator.clients.pool import ClientPool
from simulator.conditions import Conditions
from simulator.engine.simulator import Simulator
from simulator.network.network import Network
from simulator.plan import Plan


class Surroundings:
    """The parts of one seed's world, without its brokers.

    Args:
        recovery_s: as of `Conditions`.
    """

    def __init__(self, seed: int, plan: Plan, recovery_s: float) -> None:
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
