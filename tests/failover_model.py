"""A small model of replication around the controller's real plans: which replica has which record.

Brokers follow the metadata late, die, lose the end of their logs or their folders, cannot write for
a while, cannot use their logs until they start again, and come back.
Leaders commit by the rules of `replica/watermark.py`: a record is committed when all of the maximal
ISR have it, and never while the ISR is smaller than `min.insync.replicas`.

After each step `check` holds: every replica that is in the ISR or the ELR has every committed
record, and so has every leader that serves. Brokers whose loss the controller does not know yet are
exempt: they are down or fenced. With `unclean.leader.election.enable` records may be lost instead,
and the partition has a leader while any replica can lead. In either case no election chooses a
replica whose log is known to be offline. Metadata of a former level does not have the offline
replicas: an election may choose one, until its broker repeats its report.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lakelog.base.config.broker_config import BrokerConfig
from lakelog.metadata.controller.brokers import plan_fence, plan_join, plan_read_only, plan_unfence
from lakelog.metadata.controller.configs import (
    ConfigChange,
    Operation,
    ResourceChange,
    plan_alter_configs,
)
from lakelog.metadata.controller.leadership import (
    ElectionType,
    ProposedIsr,
    plan_alter_partitions,
    plan_elect_leaders,
    plan_failed_replicas,
)
from lakelog.metadata.failover import NO_LEADER, Failure, PartitionImage
from lakelog.metadata.features import METADATA_VERSION, OFFLINE_SINCE
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.plan import Plan, T
from lakelog.metadata.records import (
    FeatureRecord,
    PartitionRecord,
    Record,
    ResourceType,
    TopicRecord,
)

TOPIC = b"t" * 16
Entry = tuple[int, int]
"""Leader epoch and number of a record."""


@dataclass
class Replica:
    """One broker with its log, and its knowledge of the metadata."""

    node_id: int
    folder: int = 0
    log: list[Entry] = field(default_factory=list)
    flushed: int = 0
    """The number of entries that survive a power failure."""
    view: MetadataImage | None = None
    """The metadata that the process knows; None while it is down."""
    epoch: int = 0
    complete_for: int = -1
    """The broker epoch in the marks of its folder."""
    keeps_for: int = -1
    """The same in the mark of its topics with `durability=fsync`, which survives power failures."""
    has_lost: bool = False
    """Whether it lacks entries, and the controller does not know that yet."""
    positions: dict[int, tuple[int, int]] = field(default_factory=dict)
    """As a leader: the log end and the broker epoch of each follower that has fetched."""
    proposed: frozenset[int] = frozenset()
    epoch_start: int = 0
    failed_in: int | None = None
    """The leader epoch in which the log of this process failed."""

    @property
    def directory_id(self) -> bytes:
        return bytes([self.node_id, self.folder + 1]) * 8

    def known(self) -> PartitionImage:
        assert self.view is not None
        return self.view.topics_by_id[TOPIC].partitions[0]

    @property
    def leads(self) -> bool:
        """Whether it serves as the leader, by the metadata that it knows."""
        is_leader = self.view is not None and self.known().leader == self.node_id
        return is_leader and self.failed_in is None


class ClusterModel:
    """Brokers 1 to `factor` with one partition, which has a replica on each."""

    def __init__(
        self,
        factor: int,
        min_isr: int,
        *,
        durable: bool = False,
        unclean: bool = False,
        level: int = OFFLINE_SINCE,
    ) -> None:
        """
        durable: whether positions count after a flush, as with `durability=fsync`.
        unclean: the topic's `unclean.leader.election.enable`.
        level: of `lakelog.metadata.version`.
        """
        self.durable = durable
        self.unclean = unclean
        self.remembers = level >= OFFLINE_SINCE
        """Whether the metadata has the offline replicas."""
        self.image = MetadataImage().apply(FeatureRecord(METADATA_VERSION, level))
        self.replicas = {number: Replica(number) for number in range(1, factor + 1)}
        self.committed: list[Entry] = []
        self.written = 0
        for node_id in self.replicas:
            self.start(node_id)
            self.unfence(node_id)
        ids = tuple(self.replicas)
        self._apply(TopicRecord("t", TOPIC), PartitionRecord(TOPIC, 0, ids, ids, 1, 0, 0))
        self.set_min_isr(min_isr)
        self._set("unclean.leader.election.enable", str(unclean).lower())
        for replica in self.replicas.values():
            replica.view = self.image

    @property
    def state(self) -> PartitionImage:
        return self.image.topics_by_id[TOPIC].partitions[0]

    # The controller

    def _apply(self, *records: Record) -> None:
        self.image = self.image.apply_all(records, self.image.end + 1)

    def _submit(self, plan: Plan[T]) -> T:
        if plan.records:
            self._apply(*plan.records)
        return plan.result

    def fence(self, node_id: int) -> None:
        """The controller has missed heartbeats; the process may live."""
        self._submit(plan_fence(self.image, {node_id: self.image.brokers[node_id].epoch}))

    def unfence(self, node_id: int) -> None:
        replica = self.replicas[node_id]
        is_current = replica.epoch == self.image.brokers[node_id].epoch
        if replica.view is not None and is_current:
            replica.view = self.image
            self._report_failure(replica)
            self._submit(plan_unfence(self.image, node_id, replica.epoch))

    def fail(self, node_id: int) -> None:
        """The log of the broker cannot be used until the next start; it reports this."""
        replica = self.replicas[node_id]
        if replica.view is not None and replica.epoch == self.image.brokers[node_id].epoch:
            if replica.failed_in is None:
                replica.failed_in = replica.known().leader_epoch
            self._report_failure(replica)

    def _report_failure(self, replica: Replica) -> None:
        if replica.failed_in is not None:
            failed = {(TOPIC, 0): Failure(replica.failed_in, is_offline=True)}
            plan = plan_failed_replicas(self.image, replica.node_id, replica.epoch, failed)
            self._submit(plan)
            again = plan_failed_replicas(self.image, replica.node_id, replica.epoch, failed)
            assert not again.records, "a report that is noted changes nothing"
            assert self.remembers == (replica.node_id in self.state.offline)
            assert self.state.leader != replica.node_id

    def fill(self, node_id: int) -> None:
        """The broker reports that it cannot write."""
        self._report(node_id, is_read_only=True)

    def free(self, node_id: int) -> None:
        self._report(node_id, is_read_only=False)

    def _report(self, node_id: int, *, is_read_only: bool) -> None:
        replica = self.replicas[node_id]
        if replica.view is not None and replica.epoch == self.image.brokers[node_id].epoch:
            epoch = replica.epoch
            self._submit(plan_read_only(self.image, node_id, epoch, is_read_only=is_read_only))

    def set_min_isr(self, min_isr: int) -> None:
        self._set("min.insync.replicas", str(min_isr))

    def _set(self, key: str, value: str) -> None:
        changes = [ConfigChange(key, Operation.SET, value)]
        wanted = [ResourceChange(ResourceType.TOPIC, "t", changes)]
        self._submit(plan_alter_configs(self.image, wanted, broker=BrokerConfig({})))

    def prefer(self) -> None:
        self._submit(plan_elect_leaders(self.image, ElectionType.PREFERRED, [("t", [0])]))

    def elect(self, node_id: int) -> None:
        """An operator wants this leader, whatever records it lacks."""
        if self.unclean:
            wanted = {("t", 0): node_id}
            self._submit(plan_elect_leaders(self.image, ElectionType.UNCLEAN, [("t", [0])], wanted))

    # Brokers

    def start(self, node_id: int) -> None:
        """Start a process, which registers and loads its log."""
        replica = self.replicas[node_id]
        if replica.view is not None:
            return
        known = self.image.brokers.get(node_id)
        epoch = 0 if known is None else known.epoch
        plan = plan_join(
            self.image,
            node_id,
            bytes([node_id, epoch % 256]) * 8,
            endpoints=(),
            rack=None,
            directory_id=replica.directory_id,
            previous_epoch=replica.complete_for,
            kept_topics=[TOPIC],
            kept_topics_epoch=replica.keeps_for,
        )
        replica.epoch = replica.complete_for = self._submit(plan).epoch
        replica.keeps_for = replica.epoch if self.durable else -1
        replica.has_lost, replica.failed_in = False, None
        replica.view, replica.positions, replica.proposed = self.image, {}, frozenset()

    def kill(self, node_id: int) -> None:
        self.replicas[node_id].view = None

    def lose_power(self, node_id: int) -> None:
        replica = self.replicas[node_id]
        replica.view, replica.complete_for = None, -1
        replica.has_lost |= replica.flushed < len(replica.log) and not self.durable
        del replica.log[replica.flushed :]

    def wipe(self, node_id: int) -> None:
        replica = self.replicas[node_id]
        replica.flushed, replica.keeps_for = 0, -1
        replica.has_lost |= bool(replica.log)
        self.lose_power(node_id)
        replica.folder += 1

    def flush(self, node_id: int) -> None:
        self.replicas[node_id].flushed = len(self.replicas[node_id].log)

    def follow(self, node_id: int) -> None:
        """The broker reads the newest metadata."""
        replica = self.replicas[node_id]
        if replica.view is None:
            return
        before, replica.view = replica.known(), self.image
        if self.state != before:
            replica.proposed = frozenset()
        if self.state.leader_epoch != before.leader_epoch:
            replica.positions, replica.epoch_start = {}, len(replica.log)

    # Replication

    def append(self, node_id: int) -> None:
        replica = self.replicas[node_id]
        if replica.leads and node_id not in self.image.read_only:
            self.written += 1
            replica.log.append((replica.known().leader_epoch, self.written))

    def fetch(self, node_id: int) -> None:
        """Truncate the log to where it agrees with the leader's, and copy the rest."""
        replica = self.replicas[node_id]
        if replica.view is None or replica.known().leader in (-1, node_id):
            return
        if replica.failed_in is not None:
            return
        leader = self.replicas[replica.known().leader]
        is_same = leader.leads and leader.known().leader_epoch == replica.known().leader_epoch
        if not is_same or replica.epoch < leader.positions.get(node_id, (0, 0))[1]:
            return
        shared = 0
        for mine, other in zip(replica.log, leader.log, strict=False):
            if mine != other:
                break
            shared += 1
        replica.flushed = min(replica.flushed, shared)
        is_full = node_id in self.image.read_only
        replica.log[shared:] = [] if is_full else leader.log[shared:]
        leader.positions[node_id] = (self._written(replica), replica.epoch)

    def _written(self, replica: Replica) -> int:
        return replica.flushed if self.durable else len(replica.log)

    def commit(self, node_id: int) -> None:
        leader = self.replicas[node_id]
        if not leader.leads:
            return
        assert leader.view is not None
        known, min_isr = leader.known(), leader.view.min_isr("t")
        if len(known.isr) < min(min_isr, len(self.replicas)):
            return
        members = {*known.isr, *leader.proposed} - {node_id}
        ends = [leader.positions.get(member, (0, 0))[0] for member in members]
        end = min([self._written(leader), *ends])
        if end > len(self.committed):
            is_stable = leader.log[: len(self.committed)] == self.committed
            assert is_stable or self.unclean, "the prefix is stable"
            self.committed = leader.log[:end]

    def propose(self, node_id: int, wanted: frozenset[int]) -> None:
        """The leader proposes the wanted members that have caught up."""
        leader = self.replicas[node_id]
        if not leader.leads:
            return
        assert leader.view is not None
        known, brokers = leader.known(), leader.view.brokers
        needed = max(len(self.committed), leader.epoch_start)
        isr = [(node_id, -1)]
        for member in known.replicas:
            end, epoch = leader.positions.get(member, (-1, -1))
            has_caught_up = end >= needed and epoch == brokers[member].epoch
            broker = brokers[member]
            may_join = has_caught_up and not broker.is_fenced and not broker.is_read_only
            if member in wanted - {node_id} and (member in known.isr or may_join):
                isr.append((member, epoch))
        leader.proposed |= {member for member, _ in isr}
        epochs = known.leader_epoch, known.partition_epoch
        proposal = ProposedIsr(TOPIC, 0, *epochs, tuple(isr))
        if self.image.brokers[node_id].epoch == leader.epoch:
            self._submit(plan_alter_partitions(self.image, node_id, leader.epoch, [proposal]))

    # The law

    def check(self) -> None:
        """Assert that an election chooses a replica that can lead, and loses nothing committed."""
        self._check_leader()
        if self.unclean:
            return
        for node_id in (*self.state.isr, *self.state.elr):
            replica = self.replicas[node_id]
            assert replica.has_lost or self._has_committed(replica), f"{node_id} {self.state}"
        for replica in self.replicas.values():
            is_present = replica.leads and replica.known().leader_epoch == self.state.leader_epoch
            assert not is_present or self._has_committed(replica), f"leader {replica.node_id}"

    def _check_leader(self) -> None:
        state, failed = self.state, self._failed()
        unable = self.image.fenced | failed
        stuck = self.image.read_only.intersection(state.isr)
        writable = {*state.isr, *state.elr} - self.image.read_only - unable
        assert not (stuck and writable), f"a writable replica waits: {state}"
        assert set(state.offline) == (failed if self.remembers else set()), f"{failed} {state}"
        assert not set(state.offline).intersection((state.leader, *state.isr)), f"{state}"
        eligible = {*state.replicas} if self.unclean else {*state.isr, *state.elr}
        assert state.leader != NO_LEADER or eligible <= unable, f"a replica waits: {state}"

    def _failed(self) -> set[int]:
        """Return the brokers whose present process cannot use its log."""
        return {
            node_id
            for node_id, replica in self.replicas.items()
            if replica.failed_in is not None and replica.epoch == self.image.brokers[node_id].epoch
        }

    def _has_committed(self, replica: Replica) -> bool:
        return replica.log[: len(self.committed)] == self.committed
