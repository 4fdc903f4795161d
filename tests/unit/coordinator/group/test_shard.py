"""A shard's choice between the protocols, and its start and end."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from consumer_members import Consumer
from coordinator_members import (
    GROUP,
    commit_codes,
    committed,
    form,
    heartbeat,
    join,
    leave,
    new_id,
    sync,
)
from group_setup import Setup, in_virtual_time
from lakelog.base.errors import ErrorCode
from lakelog.coordinator.group.timers import TimerKey, TimerKind
from lakelog.coordinator.shard import Now

ORDERS = ("orders", 0)


@in_virtual_time()
async def test_requests_to_an_unknown_group_name_an_unknown_member(setup: Setup) -> None:
    (joined,) = await form(setup, 1)
    assert await heartbeat(setup, joined, group="other") == ErrorCode.UNKNOWN_MEMBER_ID
    assert (await sync(setup, joined, group="other")).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    left = await leave(setup, (joined.member_id, None), group="other")
    assert [each.error_code for each in left.members] == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert setup.coordinator.groups_owned == [GROUP]


@in_virtual_time()
async def test_a_classic_member_replaces_an_empty_consumer_group(setup: Setup) -> None:
    consumer = Consumer(setup, "m")
    await consumer.beat()
    await consumer.leave()
    joined = await join(setup, version=3)
    assert (joined.error_code, joined.leader) == (0, joined.member_id)
    assert (await sync(setup, joined, {joined.member_id: b"x"})).error_code == 0
    await setup.restart()
    assert await heartbeat(setup, joined) == 0


@in_virtual_time()
async def test_an_empty_consumer_group_stays_if_its_tombstones_cannot_be_written(
    setup: Setup,
) -> None:
    consumer = Consumer(setup, "m")
    await consumer.beat()
    await consumer.leave()
    setup.log.fate = lambda: "refused"
    refused = await join(setup, version=3)
    assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    setup.log.fate = lambda: "ok"
    assert (await consumer.beat()).error_code == 0


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


@in_virtual_time()
async def test_a_member_has_left_even_if_the_empty_group_cannot_be_written(setup: Setup) -> None:
    (member,) = await form(setup, 1)
    setup.log.fate = lambda: "refused"
    response = await leave(setup, (member.member_id, None))
    assert [each.error_code for each in response.members] == [0]
    setup.log.fate = lambda: "ok"
    assert await heartbeat(setup, member) == ErrorCode.UNKNOWN_MEMBER_ID


@in_virtual_time()
async def test_a_commit_renews_the_session_of_its_member(setup: Setup) -> None:
    (member,) = await form(setup, 1, session_timeout_ms=10_000)
    for offset in range(3):
        await asyncio.sleep(6)
        assert await commit_codes(setup, {ORDERS: offset}, member) == [0]
    assert await committed(setup) == {ORDERS: 2}
    assert await heartbeat(setup, member) == 0


@in_virtual_time()
async def test_an_abandoned_member_id_leaves_no_group(setup: Setup) -> None:
    await new_id(setup, session_timeout_ms=10_000)
    shard = setup.coordinator._host.shard(0)
    assert list(shard.state.classic) == [GROUP]
    await asyncio.sleep(10.1)
    assert list(shard.state.classic) == []
    assert setup.memory.used == 0


@in_virtual_time()
async def test_a_timer_of_a_deleted_group_decides_nothing(setup: Setup) -> None:
    shard = setup.coordinator._host.shard(0)
    now = Now(setup.clock.wall_ms(), 1000)
    for kind in (TimerKind.JOIN, TimerKind.SYNC, TimerKind.SESSION, TimerKind.PENDING):
        (decision,) = shard.on_due(now, TimerKey(kind, "unknown", "m"))
        assert list(decision.records) == []
