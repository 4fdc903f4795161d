"""Counters of members that are removed because they time out."""

from __future__ import annotations

import asyncio

from consumer_members import Consumer
from coordinator_members import form, heartbeat, join, leave, new_id
from coordinator_world import World, in_world


@in_world()
async def test_only_a_classic_member_that_times_out_is_counted_as_expired(
    world: World,
) -> None:
    first, second = await form(world, 2)
    await leave(world, (first.member_id, None))
    assert world.coordinator.counts.members_expired == 0
    await asyncio.sleep(60)
    assert await heartbeat(world, second) != 0
    assert world.coordinator.counts.members_expired == 1


@in_world()
async def test_members_that_are_late_for_their_generation_count(world: World) -> None:
    """Two members join, and neither sends SyncGroup."""
    ids = [await new_id(world), await new_id(world)]
    first = join(world, ids[0], session_timeout_ms=1_000_000, rebalance_timeout_ms=10_000)
    second = join(world, ids[1], session_timeout_ms=1_000_000, rebalance_timeout_ms=10_000)
    for reply in (first, second):
        assert (await reply).error_code == 0
    await asyncio.sleep(30)
    assert world.coordinator.counts.members_expired == 2


@in_world()
async def test_a_member_of_a_consumer_group_counts(world: World) -> None:
    silent, speaks = Consumer(world, "a"), Consumer(world, "b")
    await silent.beat()
    for _ in range(8):
        await speaks.beat()
        await asyncio.sleep(10)
    assert world.coordinator.counts.members_expired == 1
    await speaks.leave()
    assert world.coordinator.counts.members_expired == 1
