"""Bugs in groups: ownership of partitions, the right to commit, committed offsets."""

from __future__ import annotations

from typing import Any

import pytest

from lakelog.coordinator.group import offset_requests, removal
from lakelog.coordinator.group import shard as group_shard
from lakelog.coordinator.group.classic.group import ClassicGroup
from lakelog.coordinator.group.classic.rebalance import Rebalancer
from lakelog.coordinator.group.consumer import heartbeat as consumer_heartbeat
from lakelog.coordinator.group.consumer.group import ConsumerGroup
from lakelog.coordinator.group.consumer.groups import ConsumerGroups
from lakelog.coordinator.group.offsets import OffsetTable
from lakelog.coordinator.group.records import OffsetCommitKey
from lakelog.coordinator.shard import Result
from simulation.planted_bug import bug
from simulator.checkers.laws import Law

_STATIC = "static classic members"
_STATIC_848 = "static consumer members"
_SHORT = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "2000"}


# Offsets


@bug(
    "offsets of a living group expire",
    Law.OFFSET_KEPT,
    "classic group",
    "consumer group",
    faults=("clock",),
    seeds=20,
    seconds=30.0,
    settings=_SHORT,
)
def _living_group_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    def expired(group_id: str, group: Any, offsets: Any, now_ms: int, retention: int) -> Any:
        return [
            OffsetCommitKey(group=group_id, topic=topic, partition=partition)
            for topic, partitions in offsets.items()
            for partition, value in partitions.items()
            if now_ms >= value.commit_timestamp + retention
        ]

    monkeypatch.setattr(removal, "expired_offsets", expired)


@bug(
    "the commit of the latest time counts", Law.OFFSET_FORWARD, "consumer group", faults=("clock",)
)
def _by_commit_time(monkeypatch: pytest.MonkeyPatch) -> None:
    apply = OffsetTable._apply

    def latest(self: OffsetTable, record: Any) -> None:
        key, value = record
        known = self.of_group(key.group).get(key.topic, {}).get(key.partition)
        if known is None or value is None or known.commit_timestamp <= value.commit_timestamp:
            apply(self, record)

    monkeypatch.setattr(OffsetTable, "_apply", latest)


@bug("the offset after the committed one is returned", Law.OFFSET_SENT, "classic group")
def _the_one_after(monkeypatch: pytest.MonkeyPatch) -> None:
    partition = offset_requests._partition

    def after(*arguments: Any) -> Any:
        answer = partition(*arguments)
        answer.committed_offset += 1_000_000 * (answer.committed_offset >= 0)
        return answer

    monkeypatch.setattr(offset_requests, "_partition", after)


@bug(
    "commits of an old generation are taken",
    Law.OLD_GENERATION,
    "classic group",
    faults=("partition", "slow network", "client crash"),
)
def _old_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_requests, "check_commit", lambda *arguments: None)


@bug(
    "transactions take offsets of an old generation",
    Law.OLD_GENERATION,
    "classic group",
    faults=("partition", "slow network", "client crash"),
    seeds=20,
    report="in a transaction",
)
def _old_generation_in_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_requests, "check_txn_commit", lambda *arguments: None)


# Members of classic groups


@bug("every member gets the leader's share", Law.GENERATION_OWNER, "classic group")
def _the_leaders_share(monkeypatch: pytest.MonkeyPatch) -> None:
    give = Rebalancer.give_assignments

    def same(self: Any, now: Any, group: ClassicGroup, assignments: dict[str, bytes]) -> None:
        share = assignments.get(group.leader_id or "", b"")
        give(self, now, group, dict.fromkeys(assignments, share))

    monkeypatch.setattr(Rebalancer, "give_assignments", same)


@bug(
    "a loaded group restarts its generations",
    Law.GENERATION_FORWARD,
    "classic group",
    faults=("kill",),
)
def _generations_from_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    from_stored = ClassicGroup.from_stored

    def from_zero(group_id: str, value: Any) -> ClassicGroup:
        group = from_stored(group_id, value)
        group.generation = 0
        return group

    monkeypatch.setattr(ClassicGroup, "from_stored", from_zero)


@bug("an instance id is enough to join as", Law.FENCED_INSTANCE, _STATIC, report="JoinGroup of")
@bug("an instance id is enough to live on as", Law.FENCED_INSTANCE, _STATIC, report="Heartbeat of")
@bug("an instance id is enough to commit as", Law.FENCED_INSTANCE, _STATIC, report="a commit of")
def _instance_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    validate = ClassicGroup.validate

    def lenient(self: ClassicGroup, member_id: str, instance_id: str | None) -> Any:
        current = self.static_members.get(instance_id or "", member_id)
        return validate(self, current, instance_id)

    monkeypatch.setattr(ClassicGroup, "validate", lenient)


# Members of groups of KIP-848


@bug(
    "a partition is given before it was given up",
    Law.ONE_OWNER,
    "consumer group",
    faults=("client crash",),
    seeds=20,
)
def _given_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConsumerGroup, "is_free", lambda self, topic_id, partition: True)


@bug("a silent member stays", Law.OWNED, "consumer group", faults=("client crash",))
def _silent_member_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConsumerGroups, "on_timer", lambda *arguments: Result())


@bug(
    "an instance id is enough for a heartbeat",
    Law.FENCED_INSTANCE,
    _STATIC_848,
    report="a heartbeat of",
)
def _enough_for_a_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_instance(group: ConsumerGroup, member_id: str, instance_id: str) -> Any:
        member = group.static_member(instance_id)
        return member or fenced(group, member_id, instance_id)

    fenced = consumer_heartbeat.fenced_static_member
    monkeypatch.setattr(consumer_heartbeat, "fenced_static_member", of_instance)
    monkeypatch.setattr(consumer_heartbeat, "_check_epoch", lambda *arguments: None)


@bug(
    "a former member may commit",
    Law.FENCED_INSTANCE,
    _STATIC_848,
    report="a commit of",
)
def _former_member_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_requests, "check_consumer_commit", lambda *arguments, **named: None)


@bug(
    "members have no session after a start",
    Law.EXPIRES,
    "classic group",
    faults=("kill", "client crash"),
    first=25,
    seeds=20,
    seconds=25.0,
)
@bug(
    "members of KIP-848 have no session after a start",
    Law.EXPIRES,
    "consumer group",
    faults=("kill", "client crash"),
    seeds=20,
    seconds=25.0,
)
def _no_session_after_start(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = group_shard.GroupShard.loaded

    def without(self: Any, now: Any) -> Any:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(Rebalancer, "renew_session", lambda *arguments: None)
            inner.setattr(ConsumerGroups, "arm", lambda *arguments: None)
            return loaded(self, now)

    monkeypatch.setattr(group_shard.GroupShard, "loaded", without)
