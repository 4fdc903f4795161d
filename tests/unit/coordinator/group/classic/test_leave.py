from __future__ import annotations

import asyncio

import pytest

from coordinator_members import GROUP, form, heartbeat, join, leave, new_id, sync
from group_setup import Setup, in_virtual_time
from lakelog.base.errors import ErrorCode
from lakelog.protocol.leave_group import LeaveGroupRequest

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
    newcomer = await join(setup, version=3)
    assert newcomer.generation_id == first.generation_id + 1
    assert {each.group_instance_id for each in newcomer.members} == {"a", None}
    assert newcomer.leader == newcomer.member_id, "the leader must be a member that has joined"


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
