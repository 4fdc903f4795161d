"""Counters of members that are removed because they time out."""

from __future__ import annotations

import asyncio

from consumer_members import Consumer
from coordinator_members import form, heartbeat, join, leave, new_id
from group_setup import Setup, in_virtual_time


@in_virtual_time()
async def test_only_a_classic_member_that_times_out_is_counted_as_expired(
    setup: Setup,
) -> None:
    first, second = await form(setup, 2)
    await leave(setup, (first.member_id, None))
    assert setup.coordinator.counts.members_expired == 0
    await asyncio.sleep(60)
    assert await heartbeat(setup, second) != 0
    assert setup.coordinator.counts.members_expired == 1


@in_virtual_time()
async def test_members_that_are_late_for_their_generation_count(setup: Setup) -> None:
    """Two members join, and neither sends SyncGroup."""
    ids = [await new_id(setup), await new_id(setup)]
    first = join(setup, ids[0], session_timeout_ms=1_000_000, rebalance_timeout_ms=10_000)
    second = join(setup, ids[1], session_timeout_ms=1_000_000, rebalance_timeout_ms=10_000)
    for reply in (first, second):
        assert (await reply).error_code == 0
    await asyncio.sleep(30)
    assert setup.coordinator.counts.members_expired == 2


@in_virtual_time()
async def test_a_member_of_a_consumer_group_counts(setup: Setup) -> None:
    silent, speaks = Consumer(setup, "a"), Consumer(setup, "b")
    await silent.beat()
    for _ in range(8):
        await speaks.beat()
        await asyncio.sleep(10)
    assert setup.coordinator.counts.members_expired == 1
    await speaks.leave()
    assert setup.coordinator.counts.members_expired == 1
