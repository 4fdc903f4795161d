"""Bugs by which replicas, elections and coordinators lose or change acknowledged records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from lakelog.metadata import failover
from lakelog.metadata.controller import brokers as broker_plans
from lakelog.metadata.failover import PartitionImage
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.plan import Plan
from lakelog.metadata.store.zookeeper.session import Check, Operation, Refusal
from lakelog.protocol.fetch import FetchResponse
from lakelog.replica.followers import Followers
from lakelog.replica.partition import Partition
from lakelog.replica.role import Role
from lakelog.replica.watermark import HighWatermark
from lakelog.server.controller import controller as controllers
from lakelog.server.fetches import reading
from lakelog.server.replication.leader_session import Fetched, LeaderSession, Position
from simulation.planted_in_clusters import bug
from simulator.cluster.ensemble import NetworkedSession

# Replication


@bug("min.insync.replicas ignored", ("idempotent",), ("two down",))
def min_insync_replicas_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """An eligible replica lacks records that the leader committed alone."""
    compare = HighWatermark._compare_isr

    def compare_isr(self: HighWatermark) -> None:
        compare(self)
        self._is_short = False
        self._is_sole = self._is_leader and not self._in_sync

    monkeypatch.setattr(HighWatermark, "_compare_isr", compare_isr)
    monkeypatch.setattr(Partition, "check_min_insync", lambda self, batch=b"": None)
    monkeypatch.setattr(Partition, "append_coalesced", lambda self, *rest, **named: [])


@bug("read beyond the high watermark", ("idempotent",), ("deposed leader",))
def read_beyond_the_high_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Partition.read

    def to_the_end(self: Partition, offset: int, max_bytes: int, **named: Any) -> Any:
        named["end"] = self.log.log_end_offset
        return read(self, offset, max_bytes, **named)

    monkeypatch.setattr(Partition, "read", to_the_end)


@bug("a diverging follower that is not noticed", ("idempotent",), ("deposed leader",))
def diverging_follower_unnoticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader compares no epochs (before KIP-595)."""
    monkeypatch.setattr(reading, "check_divergence", lambda *arguments: None)


@bug("a watermark that begins again", ("idempotent",), ("pause",), seconds=6.0)
def watermark_that_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new leader counts nothing as committed before its own epoch shows it."""
    use_role = HighWatermark.use_role

    def use_from_start(self: HighWatermark, role: Role, proposed: Any = ()) -> None:
        if role.is_leader and not self._is_leader:
            self.offset = self._log.log_start_offset
        use_role(self, role, proposed)

    monkeypatch.setattr(HighWatermark, "use_role", use_from_start)


@bug("positions of an earlier leader epoch", ("idempotent",), ("earlier leader epoch",))
def positions_of_an_earlier_leader_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that leads again keeps the positions that it knew."""

    def begin(self: Followers, replicas: Iterable[int], now_ms: int) -> None:
        known = list(replicas)
        if known:  # a follower has none
            self.keep(known, now_ms)

    monkeypatch.setattr(Followers, "begin", begin)


@bug("truncated to the leader's end of an epoch", ("idempotent",), ("two elections",))
def truncated_to_the_leaders_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The follower does not compare its own end of that epoch (before KIP-279)."""
    truncate = Partition.truncate

    def to_its_end(self: Partition, epoch: int, end: int, leader_epoch: int) -> None:
        truncate(self, 2**31 - 1, end, leader_epoch)

    monkeypatch.setattr(Partition, "truncate", to_its_end)


@bug("an answer of another leader epoch", ("idempotent",), ("late answer",))
def answer_of_another_leader_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The follower stores records of an earlier epoch, which its next fetch truncates."""
    append, drop = Partition.append_fetched, LeaderSession._drop
    on_response = LeaderSession.on_response
    asked: dict[tuple[LeaderSession, tuple[bytes, int]], Position] = {}

    def append_any(self: Partition, records: memoryview, leader_epoch: int, *rest: int) -> None:
        append(self, records, self.leader_epoch, *rest)

    def drop_later(self: LeaderSession, key: tuple[bytes, int]) -> None:
        if key in self._in_session:
            asked[self, key] = self._in_session[key]
        drop(self, key)

    def with_dropped(self: LeaderSession, response: FetchResponse) -> Iterator[Fetched]:
        yield from on_response(self, response)
        for topic in response.responses:
            for data in topic.partitions:
                key = (topic.topic_id, data.partition_index)
                position = asked.pop((self, key), None)
                if position is not None and key in self._followed:
                    yield Fetched(self._followed[key], position, data)

    monkeypatch.setattr(Partition, "append_fetched", append_any)
    monkeypatch.setattr(LeaderSession, "_drop", drop_later)
    monkeypatch.setattr(LeaderSession, "on_response", with_dropped)


# Elections


@bug("eligible beside a complete ISR", ("idempotent",), ("kill", "pause"))
def eligible_beside_a_complete_isr(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica stays eligible while others commit without it."""

    def with_isr(self: PartitionImage, isr: tuple[int, ...], min_isr: int) -> PartitionImage:
        eligible = {*self.isr, *self.elr}
        elr = tuple(each for each in self.replicas if each in eligible and each not in isr)
        return self._replace(isr=isr, elr=elr, last_known_elr=())

    monkeypatch.setattr(PartitionImage, "with_isr", with_isr)


@bug("any live replica leads", ("idempotent",), ("lagging follower",))
def any_live_replica_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    def first_live(partition: PartitionImage, fenced: Any) -> int:
        return failover._first(partition, partition.replicas, fenced)

    monkeypatch.setattr(failover, "_eligible", first_live)


@bug("a leader in the epoch of its predecessor", ("idempotent",), ("pause",), seconds=6.0)
def leader_in_the_epoch_of_its_predecessor(monkeypatch: pytest.MonkeyPatch) -> None:
    led_by = PartitionImage.led_by

    def led(self: PartitionImage, leader: int, isr: tuple[int, ...]) -> PartitionImage:
        return led_by(self, leader, isr)._replace(leader_epoch=self.leader_epoch)

    monkeypatch.setattr(PartitionImage, "led_by", led)


@bug("a fenced member of the ISR", ("idempotent",), ("pause",), seconds=6.0)
def fenced_member_of_the_isr(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fenced follower stays in sync, until its leader removes it."""
    after_fencing = failover.after_fencing

    def after(partition: PartitionImage, broker_id: int, *rest: Any) -> PartitionImage:
        if partition.leader != broker_id:
            return partition
        return after_fencing(partition, broker_id, *rest)

    monkeypatch.setattr("lakelog.metadata.image.after_fencing", after)


# Control


@bug("producer ids allocated twice", ("idempotent",), ("kill",), seconds=6.0)
def producer_ids_allocated_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The block is not recorded."""

    def plan(image: MetadataImage, broker_id: int) -> Plan[range]:
        first = image.next_producer_id
        return Plan((), range(first, first + broker_plans.PRODUCER_ID_BLOCK))

    monkeypatch.setattr(controllers, "plan_producer_ids", plan)


@bug("an append of a deposed controller", ("plain", "topics"), ("silent successor",), seconds=6.0)
def append_of_a_deposed_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    """The transaction does not check the version of the term; the end of the log is unchanged."""
    write = NetworkedSession.write

    async def unchecked(self: NetworkedSession, *operations: Operation) -> Refusal | None:
        kept = [each for each in operations if not isinstance(each, Check)]
        return await write(self, *kept)

    monkeypatch.setattr(NetworkedSession, "write", unchecked)


# Coordinators


@bug("an offset answered before its replication", ("classic group",), ("kill", "pause"))
def offset_answered_before_its_replication(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator does not wait until its records are committed."""

    async def at_once(*arguments: Any) -> None:
        return None

    monkeypatch.setattr("lakelog.server.coordinators.partition_log.committed", at_once)
