"""The state of a shard: counts during evictions, groups in use, the check for expiry, timers."""

from __future__ import annotations

import asyncio

import pytest

from coordinator_members import GROUP, new_id
from group_setup import FakeTopics, Setup, in_virtual_time
from lakelog.base.memory_budget import Share
from lakelog.coordinator.group.change_queue import TimerKey, TimerKind
from lakelog.coordinator.group.classic.group import ClassicGroup
from lakelog.coordinator.group.config import GroupConfig
from lakelog.coordinator.group.consumer.member import ConsumerMember
from lakelog.coordinator.group.limits import GroupCounts, GroupLimits
from lakelog.coordinator.group.records import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRecord,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    OffsetCommitKey,
    OffsetCommitValue,
    OffsetRecord,
)
from lakelog.coordinator.group.state import ShardState
from lakelog.coordinator.shard import Now


def _state() -> ShardState:
    limits = GroupLimits(10, Share(), lambda: None, lambda *_: None)
    topics = FakeTopics({"orders": (b"o" * 16, 8)})
    state = ShardState(GroupConfig(), lambda _: {}, topics, limits, GroupCounts())
    state.group_count.open()
    state.offsets_group_count.open()
    return state


def _commit(state: ShardState, group: str, commit_ms: int = 1000) -> None:
    key = OffsetCommitKey(group=group, topic="orders", partition=0)
    value = OffsetCommitValue(offset=7, metadata="", commit_timestamp=commit_ms)
    state.replay(OffsetRecord(key, value))


def _consumer_group(state: ShardState, group: str, *, has_member: bool) -> None:
    value = ConsumerGroupMetadataValue(epoch=1, metadata_hash=0)
    state.replay(ConsumerGroupRecord(ConsumerGroupMetadataKey(group_id=group), value))
    if has_member:
        key = ConsumerGroupMemberMetadataKey(group_id=group, member_id="m")
        state.replay(ConsumerGroupRecord(key, ConsumerMember("m").metadata_value()))


def _totals(state: ShardState) -> tuple[int, int]:
    return state.limits.groups.total, state.limits.offset_groups.total


def test_each_kind_of_record_changes_its_own_groups() -> None:
    state = _state()
    _commit(state, "offsets")
    _consumer_group(state, "modern", has_member=True)
    generation = GroupMetadataValue(protocol_type="consumer", generation=3)
    state.replay(GroupRecord(GroupMetadataKey(group="classic"), generation))
    assert state.offsets.group_ids == ["offsets"]
    assert list(state.consumers.by_id) == ["modern"]
    assert list(state.classic.stored) == ["classic"]


def test_an_evicted_group_makes_room_before_its_tombstones_are_committed() -> None:
    state = _state()
    _commit(state, "a")
    state.classic["a"] = ClassicGroup("a")
    assert _totals(state) == (1, 1)
    state.begin_eviction("a")
    assert _totals(state) == (0, 0)
    assert state.limits.memory.leaving == state.account.of("a") > 0


def test_a_group_counts_again_when_its_tombstones_cannot_be_written() -> None:
    state = _state()
    _commit(state, "a")
    state.classic["a"] = ClassicGroup("a")
    state.begin_eviction("a")
    state.end_eviction("a")
    assert _totals(state) == (1, 1)
    assert state.limits.memory.leaving == 0
    state.end_eviction("a")
    assert _totals(state) == (1, 1), "a repetition changes nothing"


def test_a_group_that_has_only_offsets_does_not_count_as_live() -> None:
    state = _state()
    _commit(state, "a")
    assert _totals(state) == (0, 1)
    state.begin_eviction("a")
    assert _totals(state) == (0, 0)


def test_a_group_is_evicted_once_at_a_time() -> None:
    state = _state()
    _commit(state, "a")
    state.begin_eviction("a")
    assert not state.is_deserted("a")
    with pytest.raises(AssertionError):
        state.begin_eviction("a")


def test_a_dropped_shard_returns_all_counts_and_memory() -> None:
    state = _state()
    for group in ("a", "b"):
        _commit(state, group)
        state.classic[group] = ClassicGroup(group)
    _consumer_group(state, "c", has_member=True)
    state.begin_eviction("a")
    state.close()
    assert _totals(state) == (0, 0)
    assert (state.limits.memory.used, state.limits.memory.leaving) == (0, 0)


def test_groups_with_members_or_pending_offsets_are_not_deserted() -> None:
    state = _state()
    _consumer_group(state, "empty", has_member=False)
    _consumer_group(state, "in use", has_member=True)
    assert state.is_deserted("empty")
    assert not state.is_deserted("in use")
    assert state.is_deserted("unknown")
    key = OffsetCommitKey(group="pending", topic="orders", partition=0)
    value = OffsetCommitValue(offset=7, metadata="")
    state.offsets.pending.add(OffsetRecord(key, value), 1000)
    assert not state.is_deserted("pending")


def test_a_group_with_only_pending_member_ids_does_not_exist() -> None:
    """KIP-394: a client asked for a member id and may never join."""
    state = _state()
    state.classic["asked"] = ClassicGroup("asked")
    assert state.any_group("asked") is None
    assert state.any_group("unknown") is None
    _consumer_group(state, "modern", has_member=False)
    assert state.any_group("modern") is state.consumer_groups["modern"] is not None


def test_a_group_that_commits_again_after_ten_seconds_may_not_be_evicted() -> None:
    state = _state()
    _commit(state, "a", 1000)
    _commit(state, "b", 1000)
    _commit(state, "b", 11_000)
    assert state.probationary_groups() == [(1000, "a")]


def test_several_requests_for_room_cause_one_check_for_expiry() -> None:
    """Each check visits all groups."""
    state = _state()
    state.next_expiry_ms = 9000
    state.expire_soon()
    state.next_expiry_ms = 20_000
    state.expire_soon()
    assert state.deadlines.pop_due(9000) is not None
    assert state.deadlines.pop_due(20_000) is None


@in_virtual_time()
async def test_an_abandoned_member_id_leaves_no_group(setup: Setup) -> None:
    await new_id(setup, session_timeout_ms=10_000)
    shard = setup.coordinator._host.shard(0)
    assert list(shard.state.classic) == [GROUP]
    await asyncio.sleep(10.1)
    assert list(shard.state.classic) == []
    assert setup.memory.used == 0


@in_virtual_time()
async def test_a_timer_of_a_deleted_group_decides_nothing(setup: Setup) -> None:
    shard = setup.coordinator._host.shard(0)
    now = Now(setup.clock.wall_ms(), 1000)
    for kind in (TimerKind.JOIN, TimerKind.SYNC, TimerKind.SESSION, TimerKind.PENDING):
        (decision,) = shard.on_due(now, TimerKey(kind, "unknown", "m"))
        assert list(decision.records) == []
