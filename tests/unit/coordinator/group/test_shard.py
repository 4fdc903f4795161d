"""The start and the end of a shard."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from coordinator_members import form, heartbeat, join, sync
from group_setup import Setup, in_virtual_time
from lakelog.base.errors import ErrorCode

ORDERS = ("orders", 0)


@in_virtual_time()
async def test_a_lower_limit_of_members_rebalances_a_loaded_group(setup: Setup) -> None:
    members = await form(setup, 3)
    setup.config = replace(setup.config, members_max=2)
    await setup.restart()
    for member in members:
        assert await heartbeat(setup, member) == ErrorCode.REBALANCE_IN_PROGRESS
    replies = [join(setup, member.member_id) for member in members]
    codes = sorted([(await reply).error_code for reply in replies])
    assert codes == [0, 0, ErrorCode.GROUP_MAX_SIZE_REACHED]


@in_virtual_time()
async def test_a_loaded_member_has_a_whole_session_timeout(setup: Setup) -> None:
    """While the partition was loading, no heartbeat was accepted."""
    (member,) = await form(setup, 1, session_timeout_ms=10_000)
    await asyncio.sleep(9)
    await setup.restart()
    await asyncio.sleep(9)
    assert await heartbeat(setup, member) == 0
    await asyncio.sleep(10.1)
    assert await heartbeat(setup, member) == ErrorCode.UNKNOWN_MEMBER_ID


@in_virtual_time()
async def test_parked_requests_are_answered_when_the_partition_is_unloaded(setup: Setup) -> None:
    first = await join(setup, version=3)
    joining = join(setup, version=3)
    await asyncio.sleep(0.1)
    assert not joining.done()
    setup.coordinator.unload_partition(0)
    assert (await joining).error_code == ErrorCode.NOT_COORDINATOR
    assert await heartbeat(setup, first) == ErrorCode.NOT_COORDINATOR
    assert setup.coordinator.group_count == 0
    assert setup.memory.used == 0


@in_virtual_time()
async def test_a_parked_sync_is_answered_when_the_partition_is_unloaded(setup: Setup) -> None:
    first = await join(setup, version=3)
    second_join = join(setup, version=3)
    leader = await join(setup, first.member_id, version=3)
    follower = await second_join
    assert leader.leader == leader.member_id
    parked = sync(setup, follower)
    await asyncio.sleep(0.1)
    assert not parked.done()
    setup.coordinator.unload_partition(0)
    assert (await parked).error_code == ErrorCode.NOT_COORDINATOR
