from __future__ import annotations

import asyncio

from coordinator_members import commit_codes, committed, form
from group_setup import Setup, in_virtual_time

ORDERS = ("orders", 0)


@in_virtual_time(offsets_retention_ms=3_600_000)
async def test_offsets_of_an_idle_group_expire_and_the_group_with_them(setup: Setup) -> None:
    """KIP-211."""
    (joined,) = await form(setup, 1)
    await commit_codes(setup, {ORDERS: 7}, joined)
    await asyncio.sleep(3_600)
    assert await committed(setup) == {ORDERS: 7}, "it has been empty for less than an hour"
    await asyncio.sleep(1_200)
    assert await committed(setup) == {}
    assert setup.coordinator.groups_owned == []
    await setup.restart()
    assert setup.coordinator.groups_owned == []


@in_virtual_time(offsets_retention_ms=3_600_000)
async def test_a_commit_can_name_its_own_time_to_expire(setup: Setup) -> None:
    request = {"retention_time_ms": 60_000}
    assert await commit_codes(setup, {ORDERS: 7}, version=4, **request) == [0]
    assert await commit_codes(setup, {("orders", 1): 8}) == [0]
    await setup.restart()
    await asyncio.sleep(601)
    assert await committed(setup) == {("orders", 1): 8}
