from __future__ import annotations

import asyncio

import pytest

from coordinator_members import GROUP, form, heartbeat, join, leave, new_id, sync
from group_setup import Setup, in_virtual_time
from lakelog.base.errors import ErrorCode
from lakelog.protocol.groups import JoinGroupResponse, LeaveGroupRequest

UNKNOWN_MEMBER = ErrorCode.UNKNOWN_MEMBER_ID
FENCED = ErrorCode.FENCED_INSTANCE_ID
REBALANCING = ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("version", [0, 1, 2])
def test_below_v3_one_member_leaves(version: int) -> None:
    async def scenario(setup: Setup) -> None:
        leader, follower = await form(setup, 2)
        for member_id, code in (("stranger", UNKNOWN_MEMBER), (leader.member_id, 0)):
            request = LeaveGroupRequest(group_id=GROUP, member_id=member_id)
            response = await setup.coordinator.leave_group(request, version)
            assert (response.error_code, response.members) == (code, [])
        assert await heartbeat(setup, follower) == REBALANCING

    in_virtual_time()(scenario)()


@in_virtual_time()
async def test_one_rebalance_follows_when_several_members_leave_at_once(setup: Setup) -> None:
    one, two, three = await form(setup, 3)
    response = await leave(
        setup, (one.member_id, None), ("stranger", None), (two.member_id, None), ("", "nobody")
    )
    assert response.error_code == 0
    assert [(each.member_id, each.error_code) for each in response.members] == [
        (one.member_id, 0),
        ("stranger", UNKNOWN_MEMBER),
        (two.member_id, 0),
        ("", UNKNOWN_MEMBER),
    ]
    joined = await join(setup, three.member_id)
    assert joined.generation_id == three.generation_id + 1
    assert [each.member_id for each in joined.members] == [three.member_id]


@in_virtual_time()
async def test_the_last_to_leave_leaves_an_empty_generation_behind(setup: Setup) -> None:
    leader, follower = await form(setup, 2)
    setup.log.delay_s = lambda: 1.0
    started = setup.clock.monotonic()
    await leave(setup, (leader.member_id, None), (follower.member_id, None))
    assert setup.clock.monotonic() - started == pytest.approx(1, abs=0.01), "until it is written"
    await setup.restart()
    joined = await join(setup, await new_id(setup))
    assert joined.generation_id == leader.generation_id + 2


@in_virtual_time()
async def test_leaving_a_group_that_is_not_there(setup: Setup) -> None:
    response = await leave(setup, ("member", None))
    assert [each.error_code for each in response.members] == [UNKNOWN_MEMBER]
    assert (await leave(setup, ("member", None), group="")).error_code == ErrorCode.INVALID_GROUP_ID
    setup.coordinator.close()
    assert (await leave(setup, ("member", None))).error_code == ErrorCode.NOT_COORDINATOR


@in_virtual_time()
async def test_a_parked_join_is_answered_when_its_member_leaves(setup: Setup) -> None:
    leader, _ = await form(setup, 2)
    waiting = join(setup, leader.member_id)
    await leave(setup, (leader.member_id, None))
    assert (await waiting).error_code == UNKNOWN_MEMBER


# Static members (KIP-345)


@in_virtual_time()
async def test_a_static_member_returns_without_a_rebalance(setup: Setup) -> None:
    """KIP-345."""
    first = await join(setup, instance_id="a")
    assert first.error_code == 0, "it needs no second join for an id"
    assert first.member_id.startswith("a-")
    await sync(setup, first, {first.member_id: b"mine"}, instance_id="a")
    again = await join(setup, instance_id="a")
    assert (again.error_code, again.generation_id) == (0, first.generation_id)
    assert again.member_id != first.member_id
    assert (again.leader, again.skip_assignment) == (again.member_id, True)
    kept = await sync(setup, again, instance_id="a")
    assert bytes(kept.assignment) == b"mine"
    assert await heartbeat(setup, again, instance_id="a") == 0
    await setup.restart()
    assert await heartbeat(setup, again, instance_id="a") == 0


@in_virtual_time()
async def test_before_v9_a_returned_leader_does_not_appear_as_the_leader(setup: Setup) -> None:
    first = await join(setup, instance_id="a", version=8)
    await sync(setup, first, {first.member_id: b"mine"}, instance_id="a")
    again = await join(setup, instance_id="a", version=8)
    assert (again.leader, again.members) == (first.member_id, [])
    assert not again.skip_assignment


@in_virtual_time()
async def test_the_process_that_was_replaced_is_fenced(setup: Setup) -> None:
    """KIP-345: FENCED_INSTANCE_ID (82)."""
    first = await join(setup, instance_id="a")
    await sync(setup, first, {first.member_id: b"mine"}, instance_id="a")
    again = await join(setup, instance_id="a")
    assert await heartbeat(setup, first, instance_id="a") == FENCED
    assert (await sync(setup, first, instance_id="a")).error_code == FENCED
    assert (await join(setup, first.member_id, instance_id="a")).error_code == FENCED
    response = await leave(setup, (first.member_id, "a"))
    assert response.members[0].error_code == FENCED
    assert await heartbeat(setup, first) == UNKNOWN_MEMBER
    assert await heartbeat(setup, again, instance_id="a") == 0


@in_virtual_time()
async def test_a_waiting_process_learns_that_it_was_replaced(setup: Setup) -> None:
    first = await join(setup, instance_id="a")
    await sync(setup, first, {}, instance_id="a")
    other = join(setup, instance_id="b")
    waiting = join(setup, first.member_id, instance_id="a")
    joined = [await other, await waiting]
    syncing = sync(setup, joined[0], instance_id="b")
    usurper = join(setup, instance_id="b")
    assert (await syncing).error_code == FENCED
    again = await join(setup, first.member_id, instance_id="a")
    assert again.generation_id == (await usurper).generation_id == joined[0].generation_id + 1


@in_virtual_time()
async def test_only_another_assignor_makes_a_return_a_rebalance(setup: Setup) -> None:
    both = (("range", b"meta"), ("sticky", b"meta"))
    first = await join(setup, instance_id="a", protocols=both)
    await sync(setup, first, {first.member_id: b"mine"}, instance_id="a")
    same = await join(setup, instance_id="a", protocols=(("range", b"new"), ("sticky", b"new")))
    assert (same.generation_id, same.protocol_name) == (first.generation_id, "range")
    changed = await join(setup, instance_id="a", protocols=(("sticky", b"new"),))
    assert (changed.generation_id, changed.protocol_name) == (first.generation_id + 1, "sticky")


@in_virtual_time()
async def test_a_takeover_that_is_not_written_changes_nothing(setup: Setup) -> None:
    first = await join(setup, instance_id="a")
    await sync(setup, first, {first.member_id: b"mine"}, instance_id="a")
    setup.log.fate = lambda: "refused"
    refused = await join(setup, instance_id="a")
    assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await heartbeat(setup, first, instance_id="a") == 0


@in_virtual_time()
async def test_a_takeover_waits_out_a_rebalance_that_comes_first(setup: Setup) -> None:
    first = await join(setup, instance_id="a")
    await sync(setup, first, {first.member_id: b"mine"}, instance_id="a")
    setup.log.delay_s = lambda: 1.0
    again = join(setup, instance_id="a")
    other = join(setup, version=3)
    joined = [await again, await other]
    assert [each.error_code for each in joined] == [0, 0]
    assert {each.generation_id for each in joined} == {first.generation_id + 1}
    assert await heartbeat(setup, first, instance_id="a") == FENCED


@in_virtual_time()
async def test_a_static_member_away_for_less_than_its_session_is_waited_for(
    setup: Setup,
) -> None:
    first = await join(setup, instance_id="a", session_timeout_ms=60_000)
    await sync(setup, first, {}, instance_id="a")
    probationary_group = await join(setup, version=3)
    assert probationary_group.generation_id == first.generation_id + 1
    assert {each.group_instance_id for each in probationary_group.members} == {"a", None}
    assert probationary_group.leader == probationary_group.member_id, (
        "the leader must be a member that has joined"
    )


@in_virtual_time()
async def test_a_static_member_that_stays_away_is_dropped(setup: Setup) -> None:
    first = await join(setup, instance_id="a")
    await sync(setup, first, {}, instance_id="a")
    await asyncio.sleep(10.1)
    assert await heartbeat(setup, first, instance_id="a") == UNKNOWN_MEMBER
    assert (await join(setup, instance_id="a")).generation_id > first.generation_id


@in_virtual_time()
async def test_an_administrator_removes_a_static_member_by_its_instance_id(
    setup: Setup,
) -> None:
    first = await join(setup, instance_id="a")
    await sync(setup, first, {}, instance_id="a")
    response = await leave(setup, ("", "a"))
    answer = response.members[0]
    assert (answer.member_id, answer.group_instance_id, answer.error_code) == ("", "a", 0)
    assert await heartbeat(setup, first, instance_id="a") == UNKNOWN_MEMBER


async def _two_joined(setup: Setup) -> tuple[JoinGroupResponse, JoinGroupResponse]:
    """Return a generation of two without an assignment; the first member leads."""
    one, other = await form(setup, 2)
    again = join(setup, one.member_id)
    joined = [await join(setup, other.member_id), await again]
    leader, follower = sorted(joined, key=lambda each: each.member_id != each.leader)
    return leader, follower


@in_virtual_time()
async def test_followers_wait_for_the_leaders_assignment(setup: Setup) -> None:
    leader, follower = await _two_joined(setup)
    waiting = sync(setup, follower)
    await asyncio.sleep(1)
    assert not waiting.done()
    mine = await sync(setup, leader, {leader.member_id: b"a", follower.member_id: b"b"})
    assert (mine.error_code, bytes(mine.assignment)) == (0, b"a")
    assert (mine.protocol_type, mine.protocol_name) == ("consumer", "range")
    assert bytes((await waiting).assignment) == b"b"


@in_virtual_time()
async def test_a_late_follower_gets_its_assignment_at_once(setup: Setup) -> None:
    leader, follower = await _two_joined(setup)
    await sync(setup, leader, {follower.member_id: b"b"})
    assert bytes((await sync(setup, follower)).assignment) == b"b"
    assert bytes((await sync(setup, leader)).assignment) == b"", "not in the assignment"


@in_virtual_time()
async def test_no_member_gets_an_assignment_before_it_is_committed(setup: Setup) -> None:
    leader, follower = await _two_joined(setup)
    setup.log.delay_s = lambda: 3.0
    replies = [sync(setup, follower), sync(setup, leader, {follower.member_id: b"b"})]
    await asyncio.sleep(2.9)
    assert [reply.done() for reply in replies] == [False, False]
    assert [(await reply).error_code for reply in replies] == [0, 0]


@in_virtual_time()
async def test_an_assignment_that_is_not_written_starts_over(setup: Setup) -> None:
    leader, follower = await _two_joined(setup)
    waiting = sync(setup, follower)
    setup.log.fate = lambda: "refused"
    code = (await sync(setup, leader, {follower.member_id: b"b"})).error_code
    assert code == (await waiting).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await heartbeat(setup, leader) == REBALANCING


@in_virtual_time()
async def test_sync_group_checks_generation_member_and_protocol(setup: Setup) -> None:
    (joined,) = await form(setup, 1)
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
        response = await sync(setup, joined, **changes)
        assert response.error_code == code, changes
    assert bytes((await sync(setup, joined)).assignment) == joined.member_id.encode()


@in_virtual_time()
async def test_a_sync_during_the_join_phase_is_sent_to_join(setup: Setup) -> None:
    leader, follower = await form(setup, 2)
    join(setup, leader.member_id)
    assert (await sync(setup, follower)).error_code == REBALANCING


@in_virtual_time()
async def test_a_new_rebalance_interrupts_parked_requests(setup: Setup) -> None:
    leader, follower = await _two_joined(setup)
    waiting = sync(setup, follower)
    assert (await leave(setup, (leader.member_id, None))).members[0].error_code == 0
    assert (await waiting).error_code == REBALANCING
    joined = await join(setup, follower.member_id)
    assert (joined.leader, joined.generation_id) == (follower.member_id, leader.generation_id + 1)


@in_virtual_time()
async def test_a_leader_that_dies_before_its_sync_is_replaced(setup: Setup) -> None:
    leader, follower = await _two_joined(setup)
    waiting = sync(setup, follower)
    started = setup.clock.monotonic()
    assert (await waiting).error_code == REBALANCING
    assert setup.clock.monotonic() - started == pytest.approx(10, abs=0.01), "its session"
    joined = await join(setup, follower.member_id)
    assert joined.leader == follower.member_id
    assert await heartbeat(setup, leader) == UNKNOWN_MEMBER


@in_virtual_time()
async def test_a_leader_that_beats_and_never_assigns_is_dropped(setup: Setup) -> None:
    leader, follower = await _two_joined(setup)
    waiting = sync(setup, follower)
    started = setup.clock.monotonic()
    while not waiting.done():
        await heartbeat(setup, leader)
        await asyncio.sleep(1)
    assert setup.clock.monotonic() - started == pytest.approx(30, abs=1.01)
    assert (await waiting).error_code == REBALANCING
    assert await heartbeat(setup, leader) == UNKNOWN_MEMBER
    assert (await join(setup, follower.member_id)).leader == follower.member_id


@in_virtual_time()
async def test_a_member_that_never_syncs_is_dropped_from_a_stable_group(setup: Setup) -> None:
    leader, follower = await _two_joined(setup)
    await sync(setup, leader, {leader.member_id: b"a"})
    for _ in range(31):
        code = await heartbeat(setup, leader)
        await heartbeat(setup, follower)
        await asyncio.sleep(1)
    assert code == REBALANCING
    assert await heartbeat(setup, follower) == UNKNOWN_MEMBER


@in_virtual_time()
async def test_a_repeated_sync_replaces_the_first(setup: Setup) -> None:
    _, follower = await _two_joined(setup)
    first, second = sync(setup, follower), sync(setup, follower)
    assert (await first).error_code == REBALANCING
    assert not second.done()


@in_virtual_time()
async def test_the_assignment_is_known_after_a_restart(setup: Setup) -> None:
    leader, follower = await form(setup, 2)
    await setup.restart()
    for each in (leader, follower):
        assert await heartbeat(setup, each) == 0
        assert bytes((await sync(setup, each)).assignment) == each.member_id.encode()


@in_virtual_time()
async def test_no_member_gets_the_assignment_of_a_past_generation(setup: Setup) -> None:
    leader, follower = await _two_joined(setup)
    setup.log.delay_s = lambda: 3.0
    late = sync(setup, leader, {leader.member_id: b"old", follower.member_id: b"old"})
    probationary_group = join(setup, version=3)
    assert (await late).error_code == REBALANCING
    again = [join(setup, each.member_id) for each in (leader, follower)]
    joined = [await probationary_group] + [await reply for reply in again]
    new_leader = next(each for each in joined if each.member_id == each.leader)
    waiting = [sync(setup, each) for each in joined if each is not new_leader]
    await asyncio.sleep(5)
    assert [reply.done() for reply in waiting] == [False, False]
    await sync(setup, new_leader, {each.member_id: b"new" for each in joined})
    assert [bytes((await reply).assignment) for reply in waiting] == [b"new", b"new"]


# Heartbeat


@in_virtual_time()
async def test_the_codes_of_a_heartbeat(setup: Setup) -> None:
    leader, follower = await form(setup, 2)
    assert await heartbeat(setup, leader) == 0
    stale = JoinGroupResponse(generation_id=leader.generation_id - 1, member_id=leader.member_id)
    assert await heartbeat(setup, stale) == ErrorCode.ILLEGAL_GENERATION
    stranger = JoinGroupResponse(generation_id=leader.generation_id, member_id="stranger")
    assert await heartbeat(setup, stranger) == UNKNOWN_MEMBER
    assert await heartbeat(setup, leader, group="other") == UNKNOWN_MEMBER
    assert await heartbeat(setup, leader, group="") == ErrorCode.INVALID_GROUP_ID
    join(setup, leader.member_id)
    assert await heartbeat(setup, follower) == REBALANCING


@in_virtual_time()
async def test_before_the_assignment_a_heartbeat_is_in_order(setup: Setup) -> None:
    leader, follower = await _two_joined(setup)
    assert [await heartbeat(setup, each) for each in (leader, follower)] == [0, 0]


@in_virtual_time()
async def test_heartbeats_keep_a_session_alive_and_silence_ends_it(setup: Setup) -> None:
    leader, follower = await form(setup, 2)
    for _ in range(4):
        await asyncio.sleep(9)
        assert await heartbeat(setup, leader) == 0
        assert await heartbeat(setup, follower) == 0
    await asyncio.sleep(9)
    assert await heartbeat(setup, leader) == 0
    await asyncio.sleep(1.1)
    assert await heartbeat(setup, leader) == REBALANCING, "the follower's session has ended"
    joined = await join(setup, leader.member_id)
    assert [each.member_id for each in joined.members] == [leader.member_id]
    assert await heartbeat(setup, follower) == UNKNOWN_MEMBER


@in_virtual_time()
async def test_while_loading_a_heartbeat_asks_nothing_of_a_member(setup: Setup) -> None:
    (joined,) = await form(setup, 1)
    setup.coordinator.close()
    assert await heartbeat(setup, joined) == ErrorCode.NOT_COORDINATOR
    setup.log.read_barrier = asyncio.Event()
    loading = asyncio.ensure_future(setup.coordinator.load_partition(0, 0))
    await asyncio.sleep(0.1)
    assert await heartbeat(setup, joined) == 0
    assert (await sync(setup, joined)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (await leave(setup, (joined.member_id, None))).error_code == (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    )
    setup.log.read_barrier.set()
    await loading
    assert await heartbeat(setup, joined) == 0


@in_virtual_time()
async def test_a_new_session_begins_after_loading(setup: Setup) -> None:
    (joined,) = await form(setup, 1)
    await asyncio.sleep(9)
    await setup.restart()
    await asyncio.sleep(9)
    assert await heartbeat(setup, joined) == 0
    await asyncio.sleep(10.1)
    assert await heartbeat(setup, joined) == UNKNOWN_MEMBER


@in_virtual_time()
async def test_a_member_that_died_while_no_broker_coordinated_expires(setup: Setup) -> None:
    (joined,) = await form(setup, 1)
    await setup.restart()
    await asyncio.sleep(10.1)
    assert await heartbeat(setup, joined) == UNKNOWN_MEMBER


@in_virtual_time()
async def test_a_pending_member_is_no_member(setup: Setup) -> None:
    (joined,) = await form(setup, 1)
    member_id = await new_id(setup)
    pending = JoinGroupResponse(generation_id=joined.generation_id, member_id=member_id)
    assert await heartbeat(setup, pending) == UNKNOWN_MEMBER
    assert GROUP in setup.group_ids
