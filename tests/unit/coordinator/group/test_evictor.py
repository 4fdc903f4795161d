"""The search for groups to evict, over all partitions."""

from __future__ import annotations

import asyncio

import pytest

from coordinator_members import commit_codes, committed, form
from group_setup import Setup, in_virtual_time
from lakelog.base.errors import ErrorCode

ORDERS = ("orders", 0)
AGAINST_POLICY = ErrorCode.POLICY_VIOLATION
FULL = {"groups_max": 3, "partitions": 4}


async def _commit(setup: Setup, group: str) -> int:
    (code,) = await commit_codes(setup, {ORDERS: 7}, group=group)
    return code


@pytest.mark.parametrize("wait_s", [0, 131])
def test_a_new_group_replaces_a_newcomer_after_two_minutes(wait_s: int) -> None:
    @in_virtual_time(**FULL)
    async def scenario(setup: Setup) -> None:
        for group in ("a", "b", "c"):
            assert await _commit(setup, group) == 0
            await asyncio.sleep(0.1)
        await asyncio.sleep(wait_s)
        assert await _commit(setup, "new") == (0 if wait_s else AGAINST_POLICY)
        await asyncio.sleep(1)
        left = [group for group in ("a", "b", "c") if await committed(setup, group)]
        assert left == (["a", "b"] if wait_s else ["a", "b", "c"]), "the newest is evicted"
        assert setup.coordinator.counts.groups_evicted == bool(wait_s)

    scenario()


@in_virtual_time(**FULL)
async def test_groups_that_committed_again_and_groups_with_members_stay(setup: Setup) -> None:
    for group in ("in use", "a"):
        assert await _commit(setup, group) == 0
    (member,) = await form(setup, 1, group="member", session_timeout_ms=1_000_000)
    assert await commit_codes(setup, {ORDERS: 7}, member, group="member") == [0]
    await asyncio.sleep(11)
    assert await _commit(setup, "in use") == 0
    await asyncio.sleep(131)
    assert await _commit(setup, "new") == 0
    await asyncio.sleep(1)
    assert await committed(setup, "a") == {}
    assert await _commit(setup, "another") == AGAINST_POLICY
    assert await committed(setup, "in use") == await committed(setup, "member") == {ORDERS: 7}


@in_virtual_time(**FULL)
async def test_a_search_without_a_result_is_not_repeated_within_a_second(setup: Setup) -> None:
    """Each search visits every newcomer, so a flood of requests must not repeat it."""
    for group in ("a", "b", "c"):
        assert await _commit(setup, group) == 0
    evictor = setup.coordinator._evictor
    evictor.evict("new", 1, 0)
    setup.clock.leap(600_000)
    evictor.evict("new", 1, 0)
    await asyncio.sleep(0.5)
    assert setup.coordinator.counts.groups_evicted == 0
    await asyncio.sleep(0.6)
    evictor.evict("new", 1, 0)
    await asyncio.sleep(0.1)
    assert setup.coordinator.counts.groups_evicted == 1


@in_virtual_time(partitions=4)
async def test_eviction_stops_at_the_wanted_groups_or_bytes(setup: Setup) -> None:
    for number in range(6):
        assert await _commit(setup, f"g{number}") == 0
    setup.clock.leap(600_000)
    evictor = setup.coordinator._evictor
    evictor.evict("new", 2, 0)
    await asyncio.sleep(0.1)
    assert setup.coordinator.counts.groups_evicted == 2
    evictor.evict("new", 0, 1)
    await asyncio.sleep(0.1)
    assert setup.coordinator.counts.groups_evicted == 3
    evictor.evict("new", 0, setup.memory.used)
    await asyncio.sleep(0.1)
    assert setup.coordinator.counts.groups_evicted == 6


@in_virtual_time()
async def test_the_group_that_needs_the_room_is_not_evicted(setup: Setup) -> None:
    assert await _commit(setup, "a") == 0
    setup.clock.leap(600_000)
    setup.coordinator._evictor.evict("a", 1, 0)
    await asyncio.sleep(0.1)
    assert await committed(setup, "a") == {ORDERS: 7}
