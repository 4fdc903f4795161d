from __future__ import annotations

import asyncio

from coordinator_members import commit_codes, committed, committed_one
from group_setup import Setup, in_virtual_time

ORDERS = ("orders", 0)


@in_virtual_time()
async def test_acknowledged_offsets_survive_a_restart(setup: Setup) -> None:
    await commit_codes(setup, {ORDERS: 7, ("clicks", 1): 8}, metadata="note")
    await commit_codes(setup, {ORDERS: 9}, group="other")
    await setup.restart()
    assert await committed(setup) == {ORDERS: 7, ("clicks", 1): 8}
    assert await committed(setup, "other") == {ORDERS: 9}
    assert (await committed_one(setup, "clicks", 1)).metadata == "note"


@in_virtual_time()
async def test_a_deleted_topics_offsets_are_deleted_with_it(setup: Setup) -> None:
    await commit_codes(setup, {ORDERS: 7, ("clicks", 0): 8})
    setup.coordinator.on_topics_deleted([("orders", b"o" * 16)])
    await asyncio.sleep(0.1)
    assert await committed(setup) == {("clicks", 0): 8}
    await setup.restart()
    assert await committed(setup) == {("clicks", 0): 8}


@in_virtual_time()
async def test_a_topic_of_the_same_name_begins_without_offsets(setup: Setup) -> None:
    """Even if the broker stopped before the old offsets were deleted."""
    await commit_codes(setup, {ORDERS: 7})
    setup.topics.topics["orders"] = (b"n" * 16, 8)
    await setup.restart()
    assert await committed(setup) == {}
    assert (await committed_one(setup, *ORDERS)).committed_offset == -1
    assert await commit_codes(setup, {ORDERS: 1}) == [0]
    setup.coordinator.on_topics_deleted([("orders", b"o" * 16)])
    await asyncio.sleep(0.1)
    assert await committed(setup) == {ORDERS: 1}, "they are not the old topic's"
