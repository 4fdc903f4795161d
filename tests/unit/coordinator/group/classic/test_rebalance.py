from __future__ import annotations

import asyncio
from typing import Any

import pytest

from coordinator_members import GROUP, form, heartbeat, join, new_id, sync
from group_setup import Setup, in_virtual_time
from lakelog.base.errors import ErrorCode

UNKNOWN_MEMBER = ErrorCode.UNKNOWN_MEMBER_ID


@in_virtual_time()
async def test_a_third_member_starts_a_rebalance_that_all_must_join(setup: Setup) -> None:
    leader, follower = await form(setup, 2)
    probationary_group = join(setup, await new_id(setup))
    await asyncio.sleep(0)
    assert not probationary_group.done()
    assert await heartbeat(setup, leader) == ErrorCode.REBALANCE_IN_PROGRESS
    again = [join(setup, leader.member_id), join(setup, follower.member_id)]
    joined = [await reply for reply in (probationary_group, *again)]
    assert {each.generation_id for each in joined} == {leader.generation_id + 1}
    assert len({each.leader for each in joined}) == 1


@in_virtual_time()
async def test_a_member_that_does_not_rejoin_in_time_is_removed(setup: Setup) -> None:
    leader, follower = await form(setup, 2)
    probationary_group = join(setup, await new_id(setup))
    again = join(setup, follower.member_id)
    started = setup.clock.monotonic()
    for _ in range(29):
        await asyncio.sleep(1)
        await heartbeat(setup, leader)
    joined = await probationary_group
    assert setup.clock.monotonic() - started == pytest.approx(30, abs=0.01)
    assert (await again).generation_id == joined.generation_id == leader.generation_id + 1
    assert joined.leader == follower.member_id
    assert await heartbeat(setup, leader) == UNKNOWN_MEMBER


@in_virtual_time()
async def test_a_member_whose_session_ends_during_a_rebalance_is_not_waited_for(
    setup: Setup,
) -> None:
    leader, follower = await form(setup, 2)
    probationary_group = join(setup, await new_id(setup))
    again = join(setup, follower.member_id)
    started = setup.clock.monotonic()
    await probationary_group
    await again
    assert setup.clock.monotonic() - started == pytest.approx(10, abs=0.01)
    assert await heartbeat(setup, leader) == UNKNOWN_MEMBER


@in_virtual_time(initial_rebalance_delay_ms=3000)
async def test_an_empty_group_waits_for_more_members(setup: Setup) -> None:
    replies = []
    started = setup.clock.monotonic()
    for _ in range(3):
        replies.append(join(setup, version=3))
        await asyncio.sleep(2)
    assert [reply.done() for reply in replies] == [False] * 3
    joined = [await reply for reply in replies]
    assert {each.generation_id for each in joined} == {1}
    # Members joined in the first two delays of 3 s, none in the third.
    assert setup.clock.monotonic() - started == pytest.approx(9, abs=0.01)


@in_virtual_time(initial_rebalance_delay_ms=3000)
async def test_the_initial_wait_ends_at_the_rebalance_timeout(setup: Setup) -> None:
    started = setup.clock.monotonic()
    first = join(setup, version=3, rebalance_timeout_ms=7000)
    later = []
    while not first.done():
        later.append(join(setup, version=3, rebalance_timeout_ms=7000))
        await asyncio.sleep(1)
    assert setup.clock.monotonic() - started == pytest.approx(7, abs=1.01)


@in_virtual_time(initial_rebalance_delay_ms=0)
async def test_a_rebalance_waits_as_long_as_its_most_patient_member_asks_for(
    setup: Setup,
) -> None:
    short: dict[str, Any] = {"session_timeout_ms": 60_000, "rebalance_timeout_ms": 10_000}
    (leader,) = await form(setup, 1, **short)
    other = join(setup, await new_id(setup), **short | {"rebalance_timeout_ms": 40_000})
    joined = [await join(setup, leader.member_id, **short), await other]
    for reply in [sync(setup, joined[0], {}), sync(setup, joined[1])]:
        assert (await reply).error_code == 0
    started = setup.clock.monotonic()
    again = await join(setup, leader.member_id, protocols=(("range", b"other"),), **short)
    assert (again.error_code, len(again.members)) == (0, 1)
    assert setup.clock.monotonic() - started == pytest.approx(40, abs=0.01)


@in_virtual_time(initial_rebalance_delay_ms=3000)
async def test_one_member_waits_the_delay_once(setup: Setup) -> None:
    started = setup.clock.monotonic()
    await join(setup, await new_id(setup))
    assert setup.clock.monotonic() - started == pytest.approx(3, abs=0.01)


@in_virtual_time()
async def test_an_abandoned_first_rebalance_leaves_an_empty_group(setup: Setup) -> None:
    (joined,) = await form(setup, 1)
    await asyncio.sleep(11)
    group = setup.coordinator._host.shard(0).state.classic[GROUP]
    assert (group.state, group.generation) == ("Empty", joined.generation_id + 1)
    assert setup.coordinator._host.shard(0).state.classic.stored[GROUP].members == []


@in_virtual_time()
async def test_a_new_member_interrupts_a_generation_without_assignment(setup: Setup) -> None:
    leader = await join(setup, await new_id(setup))
    second_id = await new_id(setup)
    waiting = sync(setup, leader, {}, generation_id=leader.generation_id)
    probationary_group = join(setup, second_id)
    code = (await waiting).error_code
    assert code in (0, ErrorCode.REBALANCE_IN_PROGRESS)
    again = join(setup, leader.member_id)
    assert (await probationary_group).generation_id == (await again).generation_id == 2


@in_virtual_time(new_member_join_timeout_ms=60_000)
async def test_a_new_member_does_not_wait_longer_than_the_limit_for_new_members(
    setup: Setup,
) -> None:
    """Its client may no longer exist, but would be a member of the next generation."""
    patient: dict[str, Any] = {"session_timeout_ms": 60_000, "rebalance_timeout_ms": 1_000_000}
    (leader,) = await form(setup, 1, **patient)
    probationary_group = join(setup, await new_id(setup), **patient)
    started = setup.clock.monotonic()
    while not probationary_group.done():
        await asyncio.sleep(5)
        assert await heartbeat(setup, leader) == ErrorCode.REBALANCE_IN_PROGRESS
        assert setup.clock.monotonic() - started < 100
    assert (await probationary_group).error_code == UNKNOWN_MEMBER
    assert setup.clock.monotonic() - started == pytest.approx(60, abs=5)
