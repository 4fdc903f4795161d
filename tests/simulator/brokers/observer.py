"""The observer of one broker: checks its logs at each change on disk, each death and each start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from simulator.brokers.host import BrokerHost
from simulator.checkers.findings import Findings
from simulator.checkers.laws import Law
from simulator.checkers.membership_history import MembershipHistory
from simulator.checkers.observations import Place
from simulator.checkers.offset_history import OffsetHistory
from simulator.checkers.partition_watcher import Cut, PartitionWatcher
from simulator.checkers.producer_ids import ProducerIds
from simulator.checkers.record_history import RecordHistory
from simulator.conditions import Conditions
from simulator.engine.simulator import Simulator
from simulator.plan import Plan


class Histories(Protocol):
    """The histories of a world's clients."""

    @property
    def records(self) -> RecordHistory: ...
    @property
    def offsets(self) -> OffsetHistory: ...
    @property
    def members(self) -> MembershipHistory: ...
    @property
    def producer_ids(self) -> ProducerIds: ...


class Restarted(Protocol):
    """A part of the world that is notified of each start of the broker."""

    def on_started(self) -> None: ...


class BrokerObserver:
    """A `HostObserver`.

    `on_cut` is called when the end of a log was lost: responses of the dead process may report
    records that no longer exist, and must not arrive later.
    """

    def __init__(
        self,
        simulator: Simulator,
        plan: Plan,
        findings: Findings,
        conditions: Conditions,
        histories: Histories,
        watcher: PartitionWatcher,
        bit_flips: Restarted,
        *,
        on_cut: Callable[[], None],
        owns: Callable[[BrokerHost, str], bool],
    ) -> None:
        """`owns` returns whether a group belongs to a broker."""
        self._simulator = simulator
        self._plan = plan
        self._findings = findings
        self._conditions = conditions
        self._histories = histories
        self._watcher = watcher
        self._bit_flips = bit_flips
        self._on_cut = on_cut
        self._owns = owns
        self._disk_steps = -1
        self._lost_power = False

    # At each step

    def on_step(self, host: BrokerHost) -> None:
        """Check the logs if the disk changed, and note groups that are being loaded."""
        server = host.server
        if server is None:
            return
        if host.disk.steps != self._disk_steps:
            self._disk_steps = host.disk.steps
            self._watcher.check(list(server.broker.partitions))
        if server.broker.groups.loading:
            self._note_loading(host)

    def _note_loading(self, host: BrokerHost) -> None:
        assert host.server is not None
        groups, members = host.server.broker.groups, self._histories.members
        for group in members.static_groups:
            if self._owns(host, group) and groups.partition_for(group) in groups.loading:
                members.loads(group, self._simulator.loop.time())

    # Starts and ends of the process

    def on_started(self, host: BrokerHost) -> None:
        assert host.server is not None
        partitions = list(host.server.broker.partitions)
        power, self._lost_power = self._lost_power, False
        cuts = self._watcher.compare(partitions, power=power)
        excused = [self._excuse(topic_partition, cut) for topic_partition, cut in cuts.items()]
        self._bit_flips.on_started()
        if any(excused):
            self._conditions.cut_at = self._simulator.loop.time()
            self._on_cut()
        self._simulator.trace("started", host.name, host.disk.steps)

    def _excuse(self, partition: Place, cut: Cut) -> bool:
        """Return whether records behind the new end may be missing, and forget them if so.

        They may if only the page cache had them, or if a bit of them flipped. In a durable world
        the acknowledgements count, not the broker's own recovery point.
        """
        histories = self._histories
        if self._plan.is_durable:
            histories.records.check_durable(partition, cut.end, cut.damaged_at)
        if not cut.allowed or (self._plan.is_durable and cut.damaged_at is None):
            return False
        histories.records.cut(partition, cut.end)
        histories.offsets.cut(partition, cut.end)
        histories.members.cut(partition)
        return True

    def on_stopping(self, host: BrokerHost) -> None:
        self._remember(host)

    def on_death(self, host: BrokerHost, *, power: bool) -> None:
        self._simulator.trace("death", host.name, power, host.disk.steps)
        self._remember(host)
        if power or host.server is None:
            self._histories.producer_ids.note_loss(host.name, self._simulator.loop.time())
        self._lost_power |= power

    def on_start_refused(self, host: BrokerHost, error: BaseException) -> None:
        self._simulator.trace("refused", str(error))
        if not {"disk error", "disk full"} & self._plan.faults:
            self._findings.violation(Law.STARTS, f"{host.name} does not start: {error}")

    def _remember(self, host: BrokerHost) -> None:
        if host.server is not None:
            partitions = list(host.server.broker.partitions)
            self._watcher.check(partitions)
            self._watcher.remember(partitions)
