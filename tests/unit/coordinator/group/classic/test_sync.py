from __future__ import annotations

import asyncio

import pytest

from coordinator_members import GROUP, form, heartbeat, join, leave, new_id, sync
from coordinator_world import World, in_world
from lakelog.base.errors import ErrorCode
from lakelog.protocol.join_group import JoinGroupResponse

UNKNOWN_MEMBER = ErrorCode.UNKNOWN_MEMBER_ID
REBALANCING = ErrorCode.REBALANCE_IN_PROGRESS


async def _two_joined(world: World) -> tuple[JoinGroupResponse, JoinGroupResponse]:
    """Return a generation of two without an assignment; the first member leads."""
    one, other = await form(world, 2)
    again = join(world, one.member_id)
    joined = [await join(world, other.member_id), await again]
    leader, follower = sorted(joined, key=lambda each: each.member_id != each.leader)
    return leader, follower


@in_world()
async def test_followers_wait_for_the_leaders_assignment(world: World) -> None:
    leader, follower = await _two_joined(world)
    waiting = sync(world, follower)
    await asyncio.sleep(1)
    assert not waiting.done()
    mine = await sync(world, leader, {leader.member_id: b"a", follower.member_id: b"b"})
    assert (mine.error_code, bytes(mine.assignment)) == (0, b"a")
    assert (mine.protocol_type, mine.protocol_name) == ("consumer", "range")
    assert bytes((await waiting).assignment) == b"b"


@in_world()
async def test_a_late_follower_gets_its_assignment_at_once(world: World) -> None:
    leader, follower = await _two_joined(world)
    await sync(world, leader, {follower.member_id: b"b"})
    assert bytes((await sync(world, follower)).assignment) == b"b"
    assert bytes((await sync(world, leader)).assignment) == b"", "not in the assignment"


@in_world()
async def test_no_member_gets_an_assignment_before_it_is_committed(world: World) -> None:
    leader, follower = await _two_joined(world)
    world.log.delay_s = lambda: 3.0
    replies = [sync(world, follower), sync(world, leader, {follower.member_id: b"b"})]
    await asyncio.sleep(2.9)
    assert [reply.done() for reply in replies] == [False, False]
    assert [(await reply).error_code for reply in replies] == [0, 0]


@in_world()
async def test_an_assignment_that_is_not_written_starts_over(world: World) -> None:
    leader, follower = await _two_joined(world)
    waiting = sync(world, follower)
    world.log.fate = lambda: "refused"
    code = (await sync(world, leader, {follower.member_id: b"b"})).error_code
    assert code == (await waiting).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await heartbeat(world, leader) == REBALANCING


@in_world()
async def test_sync_group_checks_generation_member_and_protocol(world: World) -> None:
    (joined,) = await form(world, 1)
    for changes, code in (
        ({}, 0),
        ({"protocol_type": None, "protocol_name": None}, 0),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"generation_id": joined.generation_id + 1}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation_id": joined.generation_id - 1}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "stranger"}, UNKNOWN_MEMBER),
        ({"group_id": "other"}, UNKNOWN_MEMBER),
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group_instance_id": "nobody"}, UNKNOWN_MEMBER),
    ):
        response = await sync(world, joined, **changes)
        assert response.error_code == code, changes
    assert bytes((await sync(world, joined)).assignment) == joined.member_id.encode()


@in_world()
async def test_a_sync_during_the_join_phase_is_sent_to_join(world: World) -> None:
    leader, follower = await form(world, 2)
    join(world, leader.member_id)
    assert (await sync(world, follower)).error_code == REBALANCING


@in_world()
async def test_a_new_rebalance_interrupts_parked_requests(world: World) -> None:
    leader, follower = await _two_joined(world)
    waiting = sync(world, follower)
    assert (await leave(world, (leader.member_id, None))).members[0].error_code == 0
    assert (await waiting).error_code == REBALANCING
    joined = await join(world, follower.member_id)
    assert (joined.leader, joined.generation_id) == (follower.member_id, leader.generation_id + 1)


@in_world()
async def test_a_leader_that_dies_before_its_sync_is_replaced(world: World) -> None:
    leader, follower = await _two_joined(world)
    waiting = sync(world, follower)
    started = world.clock.monotonic()
    assert (await waiting).error_code == REBALANCING
    assert world.clock.monotonic() - started == pytest.approx(10, abs=0.01), "its session"
    joined = await join(world, follower.member_id)
    assert joined.leader == follower.member_id
    assert await heartbeat(world, leader) == UNKNOWN_MEMBER


@in_world()
async def test_a_leader_that_beats_and_never_assigns_is_dropped(world: World) -> None:
    leader, follower = await _two_joined(world)
    waiting = sync(world, follower)
    started = world.clock.monotonic()
    while not waiting.done():
        await heartbeat(world, leader)
        await asyncio.sleep(1)
    assert world.clock.monotonic() - started == pytest.approx(30, abs=1.01)
    assert (await waiting).error_code == REBALANCING
    assert await heartbeat(world, leader) == UNKNOWN_MEMBER
    assert (await join(world, follower.member_id)).leader == follower.member_id


@in_world()
async def test_a_member_that_never_syncs_is_dropped_from_a_stable_group(world: World) -> None:
    leader, follower = await _two_joined(world)
    await sync(world, leader, {leader.member_id: b"a"})
    for _ in range(31):
        code = await heartbeat(world, leader)
        await heartbeat(world, follower)
        await asyncio.sleep(1)
    assert code == REBALANCING
    assert await heartbeat(world, follower) == UNKNOWN_MEMBER


@in_world()
async def test_a_repeated_sync_replaces_the_first(world: World) -> None:
    _, follower = await _two_joined(world)
    first, second = sync(world, follower), sync(world, follower)
    assert (await first).error_code == REBALANCING
    assert not second.done()


@in_world()
async def test_the_assignment_is_known_after_a_restart(world: World) -> None:
    leader, follower = await form(world, 2)
    await world.restart()
    for each in (leader, follower):
        assert await heartbeat(world, each) == 0
        assert bytes((await sync(world, each)).assignment) == each.member_id.encode()


@in_world()
async def test_no_member_gets_the_assignment_of_a_past_generation(world: World) -> None:
    leader, follower = await _two_joined(world)
    world.log.delay_s = lambda: 3.0
    late = sync(world, leader, {leader.member_id: b"old", follower.member_id: b"old"})
    newcomer = join(world, version=3)
    assert (await late).error_code == REBALANCING
    again = [join(world, each.member_id) for each in (leader, follower)]
    joined = [await newcomer] + [await reply for reply in again]
    new_leader = next(each for each in joined if each.member_id == each.leader)
    waiting = [sync(world, each) for each in joined if each is not new_leader]
    await asyncio.sleep(5)
    assert [reply.done() for reply in waiting] == [False, False]
    await sync(world, new_leader, {each.member_id: b"new" for each in joined})
    assert [bytes((await reply).assignment) for reply in waiting] == [b"new", b"new"]


# Heartbeat


@in_world()
async def test_the_codes_of_a_heartbeat(world: World) -> None:
    leader, follower = await form(world, 2)
    assert await heartbeat(world, leader) == 0
    stale = JoinGroupResponse(generation_id=leader.generation_id - 1, member_id=leader.member_id)
    assert await heartbeat(world, stale) == ErrorCode.ILLEGAL_GENERATION
    stranger = JoinGroupResponse(generation_id=leader.generation_id, member_id="stranger")
    assert await heartbeat(world, stranger) == UNKNOWN_MEMBER
    assert await heartbeat(world, leader, group="other") == UNKNOWN_MEMBER
    assert await heartbeat(world, leader, group="") == ErrorCode.INVALID_GROUP_ID
    join(world, leader.member_id)
    assert await heartbeat(world, follower) == REBALANCING


@in_world()
async def test_before_the_assignment_a_heartbeat_is_in_order(world: World) -> None:
    leader, follower = await _two_joined(world)
    assert [await heartbeat(world, each) for each in (leader, follower)] == [0, 0]


@in_world()
async def test_heartbeats_keep_a_session_alive_and_silence_ends_it(world: World) -> None:
    leader, follower = await form(world, 2)
    for _ in range(4):
        await asyncio.sleep(9)
        assert await heartbeat(world, leader) == 0
        assert await heartbeat(world, follower) == 0
    await asyncio.sleep(9)
    assert await heartbeat(world, leader) == 0
    await asyncio.sleep(1.1)
    assert await heartbeat(world, leader) == REBALANCING, "the follower's session has ended"
    joined = await join(world, leader.member_id)
    assert [each.member_id for each in joined.members] == [leader.member_id]
    assert await heartbeat(world, follower) == UNKNOWN_MEMBER


@in_world()
async def test_while_loading_a_heartbeat_asks_nothing_of_a_member(world: World) -> None:
    (joined,) = await form(world, 1)
    world.coordinator.close()
    assert await heartbeat(world, joined) == ErrorCode.NOT_COORDINATOR
    world.log.read_gate = asyncio.Event()
    loading = asyncio.ensure_future(world.coordinator.load_partition(0))
    await asyncio.sleep(0.1)
    assert await heartbeat(world, joined) == 0
    assert (await sync(world, joined)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (await leave(world, (joined.member_id, None))).error_code == (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    )
    world.log.read_gate.set()
    await loading
    assert await heartbeat(world, joined) == 0


@in_world()
async def test_a_new_session_begins_after_loading(world: World) -> None:
    (joined,) = await form(world, 1)
    await asyncio.sleep(9)
    await world.restart()
    await asyncio.sleep(9)
    assert await heartbeat(world, joined) == 0
    await asyncio.sleep(10.1)
    assert await heartbeat(world, joined) == UNKNOWN_MEMBER


@in_world()
async def test_a_member_that_died_while_no_broker_coordinated_expires(world: World) -> None:
    (joined,) = await form(world, 1)
    await world.restart()
    await asyncio.sleep(10.1)
    assert await heartbeat(world, joined) == UNKNOWN_MEMBER


@in_world()
async def test_a_pending_member_is_no_member(world: World) -> None:
    (joined,) = await form(world, 1)
    member_id = await new_id(world)
    pending = JoinGroupResponse(generation_id=joined.generation_id, member_id=member_id)
    assert await heartbeat(world, pending) == UNKNOWN_MEMBER
    assert GROUP in world.coordinator.groups_owned
