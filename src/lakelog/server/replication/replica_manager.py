"""The replicas that this broker holds: their logs, their roles, and the copying between brokers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from lakelog.base.config.broker_config import BrokerConfig
from lakelog.replica.partition import Partition
from lakelog.replica.partition_registry import PartitionRegistry
from lakelog.replica.purgatory import Purgatory
from lakelog.replica.role import NO_ROLE, Role
from lakelog.server.controller.control_plane import ControlPlane
from lakelog.server.data_folder import DataFolder
from lakelog.server.options import Environment, ServeOptions
from lakelog.server.replication.isr_manager import IsrManager
from lakelog.server.replication.replica_fetcher import ReplicaFetcher, ReplicaFetcherManager
from lakelog.server.topics.durable_topics import DurableTopics
from lakelog.server.topics.log_manager import LogManager
from lakelog.server.upkeep.stored_checks import StoredChecks


class RoleChanges:
    """Counts of changes, for operators. A change of ISR counts at the leader, as in Kafka."""

    def __init__(self) -> None:
        self.elections = 0
        """Times that this broker became the leader of a partition with other replicas."""
        self.isr_shrinks = 0
        self.isr_expansions = 0
        self._last: dict[Partition, Role] = {}

    def note_role(self, partition: Partition) -> None:
        """Follow a change of the partition's role; a retired partition has none."""
        if partition.is_retired:
            self._last.pop(partition, None)
            return
        before, now = self._last.get(partition, NO_ROLE), partition.role
        self._last[partition] = now
        if not (now.is_leader and now.followers):
            return
        if not before.is_leader or before.leader_epoch != now.leader_epoch:
            self.elections += 1
        if before is not NO_ROLE:
            was_in, is_in = frozenset(before.isr), frozenset(now.isr)
            self.isr_shrinks += bool(was_in - is_in)
            self.isr_expansions += bool(is_in - was_in)


@dataclass(frozen=True, slots=True)
class ReplicaEvents:
    """The parts of the broker that replicas call.

    config: returns the broker's configuration in force.
    flush_soon: called with a partition that has records to flush, see `Partition`.
    checkpointed: waits until the checkpoint files are up to date.
    role_changed: called with each new partition, and when the role of one changes or ends.
    revoke: called when a partition has another epoch or settings, or fails, see `Admission`.
    """

    config: Callable[[], BrokerConfig]
    flush_soon: Callable[[Partition], object]
    checkpointed: Callable[[], Awaitable[bool]]
    role_changed: Callable[[Partition], object]
    revoke: Callable[[], object]


class ReplicaManager:
    """The partitions of this broker; `logs` keeps them equal to the metadata image."""

    def __init__(
        self,
        options: ServeOptions,
        environment: Environment,
        folder: DataFolder,
        control: ControlPlane,
        purgatory: Purgatory,
        checks: StoredChecks,
        events: ReplicaEvents,
    ) -> None:
        clock, tasks = environment.clock, environment.tasks
        self._options = options
        self._environment = environment
        self._control = control
        self._purgatory = purgatory
        self._checks = checks
        self._role_changed = events.role_changed
        self.role_changes = RoleChanges()
        self.partitions = PartitionRegistry(control.role_elsewhere)
        self._fetchers = ReplicaFetcherManager(self._make_fetcher)
        self.isr_manager = IsrManager(
            options.node_id,
            lambda: control.image,
            lambda request: control.link.ask_once(
                request, lambda: control.controller.alter_partition(request), is_own=True
            ),
            options.config.get_int("replica.lag.time.max.ms"),
            clock,
            tasks,
            prefers_first=options.config.get_bool("auto.leader.rebalance.enable"),
            silent=control.peers.silence.unheard,
            silent_lag_max_ms=min(
                options.config.get_int("replica.lag.time.max.ms"),
                options.config.get_int("broker.session.timeout.ms") // 2,
            ),
        )
        self.durable = DurableTopics(
            control.metadata.incarnation_id,
            folder.directory.ownership.durable_mark,
            self.partitions,
            tasks,
        )
        self.logs = LogManager(
            options.node_id,
            folder.directory,
            self.partitions,
            events.config,
            events.flush_soon,
            # A request that appends is answered before the requests that wait for its records.
            purgatory.check_soon,
            purgatory.check,
            self._on_role_changed,
            clock,
            tasks,
            events.checkpointed,
            folder.shortages.note,
            events.revoke,
            self.durable,
            control.membership.note_failed,
        )

    def _make_fetcher(self, leader_id: int) -> ReplicaFetcher:
        node_id, control = self._options.node_id, self._control
        return ReplicaFetcher(
            node_id,
            leader_id,
            lambda: control.peers.leaders.get(leader_id),
            lambda: control.image.broker_epoch(node_id),
            self._checks,
            self._purgatory,
            self._environment.clock,
            self._environment.tasks,
        )

    def _on_role_changed(self, partition: Partition) -> None:
        self._fetchers.note_role(partition)
        self.isr_manager.note_role(partition)
        self.role_changes.note_role(partition)
        self._role_changed(partition)

    def serve(self) -> None:
        """Change the ISR of led partitions from now on, in a cluster."""
        if self._options.is_clustered:
            self.isr_manager.start()

    def stop_fetching(self) -> None:
        """Change no ISR and copy nothing from now on; partitions keep their roles."""
        self.isr_manager.stop()
        self._fetchers.stop()
