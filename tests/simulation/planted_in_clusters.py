"""Bugs of replication, control and coordination, each planted in all brokers of a cluster.

Others shipped them (KIP-101, KIP-497, KIP-903, KIP-966, KAFKA-5202 and so on).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.transaction.endings import Marker, _Job
from lakelog.metadata import plan as metadata_plan
from lakelog.metadata.controller import brokers as broker_plans
from lakelog.metadata.controller import leadership as isr_plans
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.log import MetadataLog
from lakelog.metadata.plan import PlannedEntry, entries_of
from lakelog.metadata.records import Record
from lakelog.metadata.store.zookeeper.session import Operation
from lakelog.protocol.transactions import WriteTxnMarkersResponse
from lakelog.records.control import EndTransactionMarker
from lakelog.replica import desired_isr
from lakelog.replica.partition import Partition
from lakelog.replica.role import Role
from lakelog.replica.watermark import HighWatermark
from lakelog.runtime.api import pause
from lakelog.server.appends.acknowledgement import Appended
from lakelog.server.controller.relays import PATIENCE_S, ControllerLink
from lakelog.server.coordinators import leaders as marker_requests
from lakelog.server.coordinators.leaders import ClusterMarkers
from lakelog.server.coordinators.partition_log import LocalPartitionLog
from lakelog.server.replication.isr_manager import IsrManager
from lakelog.server.topics.log_manager import LogManager
from simulator.cluster.ensemble import NetworkedSession
from simulator.cluster.plan import BROKERS, ClusterPlan

Patch = Callable[[pytest.MonkeyPatch], None]
BUGS: dict[str, ClusterBug] = {}


@dataclass(frozen=True)
class ClusterBug:
    """A bug, and the plan of the worlds that should show it.

    One of `seeds` seeds from `first` on does. `settings` are more settings of brokers; faults last
    for `seconds`; there are so many `brokers` at the begin.
    """

    patch: Patch
    workloads: tuple[str, ...]
    faults: tuple[str, ...]
    seeds: int = 15
    first: int = 1
    store: str = "zookeeper"
    seconds: float = 10.0
    brokers: int = BROKERS
    settings: dict[str, str] = field(default_factory=dict)

    def plan(self) -> ClusterPlan:
        plan = ClusterPlan(
            self.seconds,
            frozenset(self.workloads),
            frozenset(self.faults),
            brokers=self.brokers,
            store=self.store,
        )
        plan.settings.update(self.settings)
        return plan


def bug(
    name: str, workloads: tuple[str, ...], faults: tuple[str, ...], **rest: Any
) -> Callable[[Patch], Patch]:
    def plant(patch: Patch) -> Patch:
        BUGS[name] = ClusterBug(patch, workloads, faults, **rest)
        return patch

    return plant


# Replication


@bug(
    "a position reported before the flush",
    ("idempotent",),
    ("power of all",),
    settings={"log.durability": "fsync"},
)
def _reported_before_the_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader counts each reported position as durable."""
    monkeypatch.setattr(HighWatermark, "is_written", property(lambda self: True))


@bug("acknowledged on the repeat path", ("idempotent",), ("kill", "cut brokers"))
def acknowledged_before_replication(monkeypatch: pytest.MonkeyPatch) -> None:
    leads = property(lambda self: self._is_leader and not self.by_flush)
    monkeypatch.setattr(HighWatermark, "by_append", leads)


@bug("watermark over the shrunk ISR", ("idempotent",), ("lagging follower",))
def watermark_over_the_shrunk_isr(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of the maximal one: a proposal counts before the controller has accepted it."""
    use_role = HighWatermark.use_role

    def proposed_alone(self: HighWatermark, role: Role, proposed: Any = ()) -> None:
        proposed = frozenset(proposed)
        use_role(self, role, proposed)
        if proposed:
            self._in_sync = proposed.intersection(role.followers)
            self._compare_isr()

    monkeypatch.setattr(HighWatermark, "use_role", proposed_alone)


@bug("a log that cannot begin within a batch", ("administration",), ("wipe",), seconds=20.0)
def log_that_cannot_begin_within_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower that begins at the leader's start, which DeleteRecords left within a batch."""
    monkeypatch.setattr(Partition, "_begin_with", lambda self, base_offset: None)


@bug("truncated to the high watermark", ("idempotent",), ("kill", "controller"))
def truncated_to_the_high_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    assume = Partition.assume

    def truncating(self: Partition, role: Role, *rest: Any) -> None:
        is_new = role.leader_epoch > self.leader_epoch
        assume(self, role, *rest)
        if is_new and not role.is_leader and self.watermark.offset < self.log.log_end_offset:
            self._cut("truncated", partial(self.log.truncate_to, self.watermark.offset))

    monkeypatch.setattr(Partition, "assume", truncating)


@bug("a stale waiting acknowledgement", ("idempotent",), ("deposed leader",))
def stale_waiting_acknowledgement(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not notice that the leader has become a follower, whose log was replaced."""

    def check(self: Appended) -> None:
        if not self._is_reached:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)

    monkeypatch.setattr(Appended, "is_complete", property(lambda self: self._is_reached))
    monkeypatch.setattr(Appended, "check", check)


@bug("AlterPartition without broker epoch", ("plain",), ("return into a cut",))
def alter_partition_without_broker_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the leader nor the controller looks at the epochs (before KIP-903)."""
    wanted = desired_isr.wanted_isr

    def wanted_isr(
        partition: Partition, node_id: int, epochs: Any, *rest: Any, **named: Any
    ) -> Any:
        known = {
            each: follower.broker_epoch
            for each in epochs
            if (follower := partition.followers.get(each)) is not None
        }
        return wanted(partition, node_id, known, *rest, **named)

    def may_join(image: MetadataImage, node_id: int, epoch: int) -> bool:
        found = image.brokers.get(node_id)
        return found is not None and not found.is_fenced

    monkeypatch.setattr("lakelog.server.replication.isr_manager.wanted_isr", wanted_isr)
    monkeypatch.setattr(isr_plans, "_may_join", may_join)


@bug("an ISR settled by a refusal", ("idempotent",), ("late ISR",), seconds=20.0)
def isr_settled_by_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader forgets an earlier request, which may still arrive and be accepted."""
    forgotten = property(lambda self: set(), lambda self, partitions: None)
    monkeypatch.setattr(IsrManager, "_unsettled", forgotten, raising=False)


@bug("a link that repeats proposals", ("idempotent",), ("late ISR",), seconds=20.0)
def link_that_repeats_proposals(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader hears of the last attempt only, and that it was refused."""
    ask_once = ControllerLink.ask_once

    async def repeating(self: ControllerLink, *arguments: Any, **named: Any) -> Any:
        deadline = self._clock.monotonic() + PATIENCE_S
        while True:
            try:
                return await ask_once(self, *arguments, **named)
            except KafkaError:
                if self._clock.monotonic() >= deadline:
                    raise
            await self.pause()

    monkeypatch.setattr(ControllerLink, "ask_once", repeating)


# Control


@bug("an uncleanly stopped broker kept in the ISR", ("idempotent",), ("two down",), seconds=20.0)
def unclean_broker_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its page cache is gone, and it stays eligible."""
    plan_join = broker_plans.plan_join

    def trusting(image: MetadataImage, broker_id: int, *rest: Any, **named: Any) -> Any:
        known = image.brokers.get(broker_id)
        if known is not None:
            named["previous_epoch"] = known.epoch
        return plan_join(image, broker_id, *rest, **named)

    monkeypatch.setattr("lakelog.server.controller.controller.plan_join", trusting)


@bug(
    "results of a multi ignored",
    ("plain", "topics"),
    ("controller", "pause", "deposed controller"),
)
def results_of_a_multi_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    write = NetworkedSession.write

    async def ignoring(self: NetworkedSession, *operations: Operation) -> None:
        await write(self, *operations)

    monkeypatch.setattr(NetworkedSession, "write", ignoring)


@bug("records of a dead controller kept", ("plain", "topics"), ("controller",))
def records_of_a_dead_controller_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next change follows the pending records, as if they were its own."""

    def keeping(image: MetadataImage, *rest: Any) -> list[PlannedEntry]:
        return entries_of(image._replace(pending=None), *rest)

    monkeypatch.setattr(metadata_plan, "entries_of", keeping)


@bug("a stale image at start", ("idempotent",), ("two down",))
def stale_image_at_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs are opened by the image before the process's last start, and then follow the newest."""
    starts = dict[int, MetadataImage]()
    load = LogManager.load

    async def stale(self: LogManager, image: MetadataImage) -> None:
        known = starts.get(self._node_id, image)
        starts[self._node_id] = image
        await load(self, known)
        await self.prepare(known, image, ())
        await self.follow(known, image, ())

    monkeypatch.setattr(LogManager, "load", stale)


@bug("a snapshot jump unseen", ("idempotent",), ("missed snapshot",))
def snapshot_jump_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The subscribers look for changes in the records, and there are none."""
    publish = MetadataLog._publish

    async def blind(
        self: MetadataLog, image: MetadataImage, records: tuple[Record, ...] | None
    ) -> None:
        if records or not self._subscribers:
            await publish(self, image, records)
        else:
            self.image = image

    monkeypatch.setattr(MetadataLog, "_publish", blind)


# Coordinators


@bug(
    "a shard loaded to the high watermark only",
    ("classic group", "transactions"),
    ("kill", "pause"),
)
def loaded_to_the_high_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    async def start_offset(self: LocalPartitionLog) -> int:
        return self._replica.log.log_start_offset

    monkeypatch.setattr(LocalPartitionLog, "start_offset", start_offset)


@bug(
    "a live coordinator epoch",
    ("classic transactions",),
    ("stuck marker",),
    first=10,
    seconds=20.0,
    settings={"request.timeout.ms": "1000", "auto.leader.rebalance.enable": "false"},
)
def live_coordinator_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer of markers repeats them, each time with the epoch that it knows by then."""
    shards = dict[int, int]()
    marker = _Job.marker

    def noted(self: _Job, key: Any) -> Marker:
        made = marker(self, key)
        shards[made.producer_id] = self.shard.partition
        return made

    async def send(self: ClusterMarkers, leader: int, markers: list[Marker]) -> list[ErrorCode]:
        while True:
            image = self._leaders._image()
            live = [_with_live_epoch(image, shards, each) for each in markers]
            try:
                response = await self._leaders.request(leader, marker_requests._request(live))
            except KafkaError:
                await pause(self._tasks, 0.1)
                continue
            assert isinstance(response, WriteTxnMarkersResponse)
            codes = marker_requests._codes(response)
            return [codes[each.producer_id, each.topic, each.partition] for each in markers]

    monkeypatch.setattr(_Job, "marker", noted)
    monkeypatch.setattr(ClusterMarkers, "_send", send)


def _with_live_epoch(image: MetadataImage, shards: dict[int, int], marker: Marker) -> Marker:
    topic = image.topic("__transaction_state")
    assert topic is not None
    state = topic.partitions[shards[marker.producer_id]]
    return marker._replace(coordinator_epoch=state.leader_epoch)


@bug("a late marker ends the next transaction", ("classic transactions",), ("late marker",))
def late_marker_ends_the_next_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Apache Kafka before transaction version 2 (KIP-890)."""
    monkeypatch.setattr(EndTransactionMarker, "repeats", lambda *arguments: False)


@bug(
    "a marker settled by an unknown partition",
    ("transactions in new topics",),
    ("unheard topic",),
    seconds=20.0,
)
def marker_settled_by_an_unknown_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader's image decides instead of the coordinator's (KAFKA-5202, KAFKA-5610)."""
    monkeypatch.setattr(marker_requests, "_RETRIED", {})
