"""Limits of the number of groups, and of the memory of pending members."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc

import pytest

from consumer_members import Consumer
from coordinator_members import commit_codes, committed, form, heartbeat, join, leave, new_id
from counted_work import lines_run
from group_setup import Setup, in_virtual_time, run
from lakelog.base.errors import ErrorCode
from lakelog.coordinator.group.classic import pending_members
from lakelog.coordinator.group.config import GroupConfig
from lakelog.protocol.delete_groups import DeleteGroupsRequest

FULL = ErrorCode.GROUP_MAX_SIZE_REACHED
AGAINST_POLICY = ErrorCode.POLICY_VIOLATION
ORDERS = ("orders", 0)


@in_virtual_time(groups_max=3, partitions=5)
async def test_one_group_too_many_is_rejected_and_the_others_continue(setup: Setup) -> None:
    (first,) = await form(setup, 1, group="a")
    await form(setup, 1, group="b")
    third = Consumer(setup, "m", group="c")
    await third.beat()
    assert setup.coordinator.group_count == 3

    assert (await join(setup, group="d")).error_code == FULL
    assert (await join(setup, group="d", version=3)).error_code == FULL
    refused = await Consumer(setup, "m", group="e").beat()
    assert refused.error_code == FULL
    assert "lakelog.groups.max" in (refused.error_message or "")

    assert await heartbeat(setup, first, group="a") == 0
    assert (await third.beat()).error_code == 0
    assert (await join(setup, group="a")).error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert await commit_codes(setup, {ORDERS: 7}, first, group="a") == [0]
    assert setup.coordinator.group_count == 3


@in_virtual_time(groups_max=2)
async def test_there_is_room_after_a_group_was_deleted(setup: Setup) -> None:
    (first,) = await form(setup, 1, group="a")
    await form(setup, 1, group="b")
    assert (await join(setup, group="c")).error_code == FULL
    await leave(setup, (first.member_id, None), group="a")
    await setup.coordinator.admin.delete_groups(DeleteGroupsRequest(groups_names=["a"]))
    assert await new_id(setup, group="c")


@in_virtual_time(groups_max=2, partitions=3)
async def test_offsets_of_one_group_too_many_are_rejected(setup: Setup) -> None:
    (member,) = await form(setup, 1, group="with members")
    for group in ("a", "b"):
        assert await commit_codes(setup, {ORDERS: 7}, group=group) == [0]
    assert await commit_codes(setup, {ORDERS: 7}, group="c") == [AGAINST_POLICY]
    assert await committed(setup, "c") == {}
    assert await commit_codes(setup, {ORDERS: 8}, group="a") == [0]
    assert await commit_codes(setup, {ORDERS: 8}, member, group="with members") == [0]
    await form(setup, 1, group="d")
    assert (await join(setup, group="e")).error_code == FULL


@in_virtual_time(groups_max=2, partitions=3)
async def test_a_group_that_only_has_offsets_may_have_members_again(setup: Setup) -> None:
    """An administrator set its offsets, or simple consumers committed them."""
    for group in ("a", "b"):
        assert await commit_codes(setup, {ORDERS: 7}, group=group) == [0]
        await form(setup, 1, group=f"with members {group}")
    assert (await join(setup, group="c")).error_code == FULL
    assert await new_id(setup, group="a")
    assert (await Consumer(setup, "m", group="b").beat()).error_code == 0


@in_virtual_time(groups_max=2)
async def test_a_restart_forgets_no_group(setup: Setup) -> None:
    for group in ("a", "b"):
        await form(setup, 1, group=group)
    await setup.restart()
    assert setup.coordinator.group_count == 2
    assert (await join(setup, group="c")).error_code == FULL
    assert await new_id(setup, group="a")


@pytest.mark.parametrize("in_one_group", [True, False])
def test_abandoned_pending_members_take_bounded_memory(
    monkeypatch: pytest.MonkeyPatch, in_one_group: bool
) -> None:
    """KIP-394: a client may request member ids and never join."""
    most = 100
    monkeypatch.setattr(pending_members, "PENDING_MAX", most)

    async def ask(setup: Setup, first: int, end: int) -> int:
        for number in range(first, end):
            group = "readers" if in_one_group else f"readers {number}"
            await new_id(setup, group=group, client_id="x" * 255, session_timeout_ms=1_800_000)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    @in_virtual_time(groups_max=10_000)
    async def scenario(setup: Setup) -> None:
        await ask(setup, 0, 10)
        tracemalloc.start()
        try:
            one_third = await ask(setup, 10, 100)
            full = await ask(setup, 100, most)
            later = await ask(setup, most, 5 * most)
        finally:
            tracemalloc.stop()
        assert one_third < 90 * 4096
        assert full - one_third < 200 * 4096
        assert later < 2 * full, "however many were asked for, and before their deadlines go"
        assert setup.coordinator.group_count <= most

    scenario()


@in_virtual_time(groups_max=2, partitions=3)
async def test_abandoned_pending_members_keep_no_group_out(setup: Setup) -> None:
    ids = {
        number: await new_id(setup, group=f"never {number}", session_timeout_ms=1_800_000)
        for number in range(20)
    }
    assert setup.coordinator.group_count == 0
    await form(setup, 1, group="a")
    assert (await Consumer(setup, "m", group="never 0").beat()).error_code == 0
    assert setup.coordinator.group_count == 2

    assert (await join(setup, ids[1], group="never 1")).error_code == FULL, "it needs room now"
    assert (await join(setup, group="never 2")).error_code == FULL
    assert (await join(setup, group="never 3", version=3)).error_code == FULL
    assert (await Consumer(setup, "m", group="never 4").beat()).error_code == FULL
    await form(setup, 2, group="a")


@in_virtual_time(groups_max=2, partitions=8, offsets_retention_check_ms=600_000)
async def test_a_group_without_members_makes_room_for_others(setup: Setup) -> None:
    """The partition does not matter."""
    places = {setup.coordinator.partition_for(group) for group in ("a", "b", "c")}
    assert len(places) == 3
    for group in ("a", "b"):
        (member,) = await form(setup, 1, group=group)
        await leave(setup, (member.member_id, None), group=group)
    assert (await join(setup, group="c")).error_code == FULL
    await asyncio.sleep(11)
    assert await new_id(setup, group="c")
    assert setup.coordinator.group_count == 0


def test_ten_thousand_clients_request_ids_and_never_join() -> None:
    @in_virtual_time(groups_max=100, partitions=2)
    async def scenario(setup: Setup) -> None:
        for number in range(10_000):
            await new_id(setup, group=f"never {number}")
        shards = setup.coordinator._host.active_shards()
        assert [len(shard.state.classic) for shard in shards] == [pending_members.PENDING_MAX] * 2
        await form(setup, 1, group="readers")
        await asyncio.sleep(11)
        left = [group for shard in shards for group in shard.state.classic]
        assert left == ["readers"]
        assert [shard.state.pending.unjoined_count for shard in shards] == [0, 0]

    scenario()


def _lines_of_a_join(partitions: int) -> int:
    async def scenario(setup: Setup) -> int:
        await form(setup, 1, group="a")
        member_id = await new_id(setup)
        return lines_run(lambda: join(setup, member_id))

    return run(scenario, GroupConfig(partitions=partitions, initial_rebalance_delay_ms=0))


def test_a_join_takes_no_more_work_with_more_partitions() -> None:
    """The limits compare shared counts instead of summing over all partitions."""
    assert _lines_of_a_join(50) == _lines_of_a_join(2)
