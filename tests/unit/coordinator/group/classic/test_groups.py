from __future__ import annotations

import asyncio
from concurrent.futures import Future

import pytest

from coordinator_members import form, join, leave, new_id
from group_setup import Setup, in_virtual_time
from lakelog.base.errors import ErrorCode
from lakelog.base.memory_budget import Account, Share
from lakelog.coordinator.group.classic.group import ClassicGroup
from lakelog.coordinator.group.classic.groups import PENDING_BYTES_MAX, PENDING_MAX, ClassicGroups
from lakelog.coordinator.group.classic.member import Member
from lakelog.coordinator.group.records import GroupMetadataValue
from lakelog.coordinator.group.requests import JoinGroup
from lakelog.coordinator.shard import ShardCount, SharedCount
from lakelog.protocol.groups import JoinGroupRequest, JoinGroupRequestProtocol


class Groups:
    """The classic groups of one loaded shard, with their totals."""

    def __init__(self) -> None:
        self.memory, self.count = Share(), SharedCount()
        count = ShardCount(self.count)
        count.open()
        self.groups = ClassicGroups(Account(self.memory), count)

    def add(self, name: str) -> ClassicGroup:
        group = self.groups[name] = ClassicGroup(name)
        return group


def _member(name: str) -> Member:
    return Member(name, None, "client", "/host", 1, 1, (("range", b"topics"),))


@pytest.mark.parametrize("way", ["pop", "del", "clear", "replace"])
def test_a_group_that_leaves_releases_its_memory(way: str) -> None:
    world = Groups()
    world.add("kept")
    group = world.add("g")
    before = world.memory.used
    group.add(_member("m"))
    assert world.memory.used == before + group.members["m"].memory
    if way == "pop":
        world.groups.pop("g")
    elif way == "del":
        del world.groups["g"]
    elif way == "clear":
        world.groups.clear()
    else:
        world.add("g")
    left = {"clear": 0, "replace": 2}.get(way, 1)
    assert (world.count.total, world.memory.used) == (left, left * before // 2)
    group.remove("m")  # of a group that has left
    assert world.memory.used == left * before // 2


def test_a_group_is_forgotten_when_nothing_refers_to_it() -> None:
    world = Groups()
    group = world.add("g")
    group.pending_joins.add("id")
    world.groups.forget_if_unused(group)
    assert "g" in world.groups
    group.pending_joins.clear()
    world.groups.forget_if_unused(group)
    assert world.groups == {}
    assert world.memory.used == world.count.total == 0


@pytest.mark.parametrize("reason", ["member", "generation", "stored"])
def test_a_group_in_use_is_not_forgotten(reason: str) -> None:
    world = Groups()
    group = world.add("g")
    if reason == "member":
        group.add(_member("m"))
    elif reason == "generation":
        group.generation = 1
    else:
        world.groups.replay("g", GroupMetadataValue(generation=0))
    world.groups.forget_if_unused(group)
    assert "g" in world.groups


def test_a_tombstone_releases_the_stored_generation() -> None:
    world = Groups()
    world.groups.replay("g", GroupMetadataValue(generation=1))
    first = world.memory.used
    world.groups.replay("g", GroupMetadataValue(generation=2))
    assert world.memory.used == first > 0
    world.groups.replay("g", None)
    assert world.groups.stored == {}
    assert world.memory.used == 0


UNKNOWN_MEMBER = ErrorCode.UNKNOWN_MEMBER_ID


@in_virtual_time()
async def test_an_id_of_one_group_is_unknown_in_another(setup: Setup) -> None:
    leader, follower = await form(setup, 2)
    pending_id = await new_id(setup)
    waiting = [join(setup, leader.member_id), join(setup, follower.member_id)]
    await join(setup, await new_id(setup, group="other"), group="other")
    assert (await join(setup, pending_id, group="other")).error_code == UNKNOWN_MEMBER
    await leave(setup, (pending_id, None), group="other")
    before = setup.clock.monotonic()
    waiting.append(join(setup, pending_id))
    assert {(await reply).error_code for reply in waiting} == {0}
    assert setup.clock.monotonic() == before


@in_virtual_time()
async def test_a_rebalance_waits_for_pending_members(setup: Setup) -> None:
    leader, follower = await form(setup, 2)
    member_id = await new_id(setup)
    again = join(setup, leader.member_id)
    follower_again = join(setup, follower.member_id)
    await asyncio.sleep(1)
    assert not again.done()
    assert (await leave(setup, (member_id, None))).members[0].error_code == 0
    assert (await again).generation_id == leader.generation_id + 1
    await follower_again


@in_virtual_time()
async def test_an_id_that_is_not_used_expires(setup: Setup) -> None:
    member_id = await new_id(setup)
    await asyncio.sleep(10.1)
    assert (await join(setup, member_id)).error_code == UNKNOWN_MEMBER
    assert setup.coordinator._host.shard(0).state.classic == {}


@in_virtual_time()
async def test_a_flood_of_long_names_is_bounded_by_its_bytes(setup: Setup) -> None:
    shard = setup.coordinator._host.shard(0)
    request = JoinGroupRequest(session_timeout_ms=10_000, protocol_type="consumer")
    request.protocols = [JoinGroupRequestProtocol(name="range")]
    now = setup.coordinator._host.now()
    for i in range(100):
        request.group_id = f"{i:032000}"
        JoinGroup.of(request, 9, "c" * 32_000, "/127.0.0.1", Future()).decide(shard, now)
    kept = list(shard.state.classic.values())
    assert 0 < sum(len(group.pending_joins) for group in kept) == len(kept)
    assert len(kept) * 32_000 <= PENDING_BYTES_MAX
    await join(setup)
    await asyncio.sleep(11)
    assert shard.state.classic == {}
    assert shard.state.pending._size == 0


@in_virtual_time()
async def test_a_flood_of_first_joins_costs_nothing(setup: Setup) -> None:
    """KIP-394; half of the ids are in one group, the others in a group each."""
    shard = setup.coordinator._host.shard(0)
    codes = set()
    request = JoinGroupRequest(session_timeout_ms=10_000, protocol_type="consumer")
    request.protocols = [JoinGroupRequestProtocol(name="range")]
    now = setup.coordinator._host.now()
    for i in range(6 * PENDING_MAX):
        request.group_id = f"flood-{i}" if i % 2 else "flood"
        decision = JoinGroup.of(request, 9, "client", "/127.0.0.1", Future()).decide(shard, now)
        assert not decision.records
        codes.add(decision.reply.error_code)
    assert codes == {ErrorCode.MEMBER_ID_REQUIRED}
    assert len(shard.state.pending) == PENDING_MAX
    assert len(shard.state.classic) == PENDING_MAX // 2 + 1
    assert sum(len(group.pending_joins) for group in shard.state.classic.values()) == PENDING_MAX
    assert len(shard.state.deadlines._heap) <= 3 * PENDING_MAX
    assert setup.group_ids == []
    await join(setup)
    await asyncio.sleep(11)
    assert shard.state.classic == {}
    assert len(shard.state.pending) == 0
    assert len(shard.state.deadlines.at) == 1, "only the check for expired offsets"
    assert setup.log.appends == 0


@in_virtual_time()
async def test_a_member_displaced_by_a_flood_of_ids_asks_again(setup: Setup) -> None:
    member_id = await new_id(setup)
    for _ in range(PENDING_MAX):
        await join(setup, group="flood")
    assert (await join(setup, member_id)).error_code == UNKNOWN_MEMBER
    assert (await join(setup, await new_id(setup))).error_code == 0
