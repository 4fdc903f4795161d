"""The observer of a cluster: checks all replicas and images against each other as they change."""

from __future__ import annotations

from collections.abc import Sequence, Set

from lakelog.coordinator.transaction.coordinator import TRANSACTION_TOPIC
from lakelog.coordinator.transaction.hanging import Owner
from lakelog.metadata.failover import PartitionImage
from lakelog.metadata.image import MetadataImage
from lakelog.replica.partition import Partition
from simulator.brokers.host import BrokerHost
from simulator.checkers.findings import Findings
from simulator.checkers.laws import Law
from simulator.checkers.producer_ids import ProducerIds
from simulator.checkers.record_history import RecordHistory
from simulator.cluster.brokers import HOME
from simulator.cluster.coordinator_history import CoordinatorHistory
from simulator.cluster.ensemble import STORE
from simulator.cluster.image_history import ImageHistory
from simulator.cluster.replica_history import ReplicaHistory
from simulator.cluster.stored_batches import BatchRun
from simulator.cluster.transaction_history import TransactionHistory
from simulator.engine.simulator import Simulator
from simulator.network.network import Network

_STEPS = 24
"""A broker is checked after so many steps of the loop, and after each change of its disk."""
_MANY = 50
"""A broker with more partitions is checked less often: a check examines all of them."""
_COMPARED_EVERY_S = 2.0


class ClusterObserver:
    """A `HostObserver` of all brokers."""

    def __init__(
        self,
        simulator: Simulator,
        network: Network,
        findings: Findings,
        records: RecordHistory,
        producer_ids: ProducerIds,
    ) -> None:
        self._simulator = simulator
        self._network = network
        self._findings = findings
        self._producer_ids = producer_ids
        self._hosts: Sequence[BrokerHost] = ()
        self.images = ImageHistory(findings, self._leader_of)
        self.replicas = ReplicaHistory(findings, records)
        self._coordinators = CoordinatorHistory(findings)
        self.transactions = TransactionHistory(findings)
        self._seen: dict[int, tuple[MetadataImage, int]] = {}
        """The image and the number of disk operations at the last check, by node id."""
        self._stored_at: dict[int, int] = {}
        """The number of disk operations when the stored batches were last checked, by node id."""
        self._compared_at: dict[int, float] = {}

    def watch(self, hosts: Sequence[BrokerHost], removed: Set[int]) -> None:
        """Observe these brokers, which may change. `removed` brokers need not be in sync."""
        self._hosts = hosts
        self.images.removed = removed

    def on_started(self, host: BrokerHost) -> None:
        self._simulator.trace("started", host.name, host.disk.steps)
        self._check_stored(host)

    def on_stopping(self, host: BrokerHost) -> None:
        self.compare(host)

    def on_death(self, host: BrokerHost, *, power: bool) -> None:
        self._simulator.trace("death", host.name, power, host.disk.steps)
        if power or host.server is None:
            self.on_loss()
        self.compare(host)

    def on_loss(self) -> None:
        """Note that a broker lost its page cache or its disk: it distrusts all assigned epochs."""
        self._producer_ids.note_loss(HOME, self._simulator.loop.time())
        self.transactions.has_lost = True

    def on_start_refused(self, host: BrokerHost, error: BaseException) -> None:
        self._simulator.trace("refused", str(error))
        if self._network.is_cut(host.name, STORE) or self._network.is_cut(STORE, host.name):
            return  # it needs the metadata, and is started again later
        if host.disk.faults.taken and isinstance(error.__cause__, OSError):
            return  # its disk fails, until the fault ends with another start
        self._findings.violation(Law.STARTS, f"{host.name} does not start: {error}")

    def on_step(self, host: BrokerHost) -> None:
        """Check a broker whose image or disk has changed, and each one every few steps."""
        server = host.server or host.stopping
        if server is None:
            return
        image, steps = server.broker.metadata.image, host.disk.steps
        if steps != self._stored_at.get(host.node_id):
            self._check_stored(host)
        before, checked = self._seen.get(host.node_id, (None, -1))
        count = 0 if host.server is None else len(host.server.broker.partitions)
        every = _STEPS if count <= _MANY else 3 * count
        is_due = (self._simulator.loop.steps + 8 * host.node_id) % every == 0
        has_changed = image is not before or (steps != checked and count <= _MANY)
        if not has_changed and not is_due:
            return
        self._seen[host.node_id] = image, steps
        if image is not before:
            self.images.note(host.name, image)
        if host.server is None:
            return
        self._check(host)
        now = self._simulator.loop.time()
        if now - self._compared_at.get(host.node_id, 0.0) > _COMPARED_EVERY_S:
            self._compared_at[host.node_id] = now
            self.compare(host)

    def _check(self, host: BrokerHost) -> None:
        assert host.server is not None
        broker, run = host.server.broker, BatchRun(host.node_id, host.starts)
        partitions = broker.partitions
        self.replicas.check(run, partitions, self.images.newest)
        self._check_stored(host)
        self._coordinators.check(run, broker.groups, broker.transactions, broker.partitions)
        self.transactions.check(run, broker.partitions, self.images.newest, self)

    def _check_stored(self, host: BrokerHost) -> None:
        """Check the batches that a broker has stored, also while it stops."""
        server = host.server or host.stopping
        if server is not None:
            self._stored_at[host.node_id] = host.disk.steps
            run = BatchRun(host.node_id, host.starts)
            self.replicas.stored.check(run, server.broker.partitions, host.disk)

    def owner(self, producer_id: int) -> Owner | None:
        """Return the owner of a producer id as its present coordinator knows it."""
        topic = self.images.newest.topic(TRANSACTION_TOPIC)
        states = topic.partitions.values() if topic is not None else ()
        for state in states:
            for host in self._hosts:
                if host.node_id != state.leader or host.server is None:
                    continue
                known = host.server.broker.transactions
                if known.leader_epoch(state.partition) == state.leader_epoch:
                    owner = known.owners().get(producer_id)
                    if owner and known.partition_for(owner.transactional_id) == state.partition:
                        return owner
        return None

    def compare(self, host: BrokerHost) -> None:
        """Compare the committed bytes of a running broker with the bytes of the others."""
        if host.server is not None:
            run = BatchRun(host.node_id, host.starts)
            self.replicas.compare(run, host.server.broker.partitions, host.disk)

    def _leader_of(self, topic_id: bytes, state: PartitionImage) -> Partition | None:
        for host in self._hosts:
            if host.node_id == state.leader and host.server is not None:
                found = host.server.broker.partitions.get(topic_id, state.partition)
                if found is not None and found.leader_epoch == state.leader_epoch:
                    return found
        return None
