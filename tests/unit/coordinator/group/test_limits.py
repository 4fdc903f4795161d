"""Limits of the number of groups, and of the memory of pending members.

Counters of members that are removed because they time out.

The limit of the total size of the subscriptions of a group's members.

Estimates of stored generations and offsets; `test_state_budget.py` measures their sums.
"""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from dataclasses import replace

import pytest

from consumer_members import Consumer
from coordinator_members import commit_codes, committed, form, heartbeat, join, leave, new_id
from counted_work import lines_run
from group_setup import Setup, in_virtual_time, run
from lakelog.base.errors import ErrorCode
from lakelog.coordinator.group.classic import groups
from lakelog.coordinator.group.config import GroupConfig
from lakelog.coordinator.group.limits import offset_bytes, pending_offset_bytes, stored_bytes
from lakelog.coordinator.group.records import (
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from lakelog.protocol.consumer_protocol import ConsumerProtocolSubscription, encode_versioned
from lakelog.protocol.groups import DeleteGroupsRequest

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


@pytest.mark.long
@pytest.mark.parametrize("in_one_group", [True, False])
def test_abandoned_pending_members_take_bounded_memory(
    monkeypatch: pytest.MonkeyPatch, in_one_group: bool
) -> None:
    """KIP-394: a client may request member ids and never join."""
    most = 100
    monkeypatch.setattr(groups, "PENDING_MAX", most)

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
    partitions = {setup.coordinator.partition_for(group) for group in ("a", "b", "c")}
    assert len(partitions) == 3
    for group in ("a", "b"):
        (member,) = await form(setup, 1, group=group)
        await leave(setup, (member.member_id, None), group=group)
    assert (await join(setup, group="c")).error_code == FULL
    await asyncio.sleep(11)
    assert await new_id(setup, group="c")
    assert setup.coordinator.group_count == 0


@pytest.mark.long
def test_ten_thousand_clients_request_ids_and_never_join() -> None:
    @in_virtual_time(groups_max=100, partitions=2)
    async def scenario(setup: Setup) -> None:
        for number in range(10_000):
            await new_id(setup, group=f"never {number}")
        shards = setup.coordinator._host.active_shards()
        assert [len(shard.state.classic) for shard in shards] == [groups.PENDING_MAX] * 2
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


OF_EACH = 32
"""Overhead of each name and each assignor."""


def saying(size: int) -> tuple[tuple[str, bytes], ...]:
    return (("range", b"x" * (size - len("range") - OF_EACH)),)


def subscribing(*topics: str) -> tuple[tuple[str, bytes], ...]:
    subscription = ConsumerProtocolSubscription(topics=list(topics), owned_partitions=[])
    return (("range", encode_versioned(subscription, 0)),)


@in_virtual_time(subscriptions_bytes_max=1000, initial_rebalance_delay_ms=0)
async def test_classic_members(setup: Setup) -> None:
    (first,) = await form(setup, 1, protocols=saying(600))
    assert (await join(setup, protocols=saying(401))).error_code == FULL
    assert (await join(setup, protocols=saying(401), version=3)).error_code == FULL
    assert (await join(setup, protocols=saying(401), instance_id="i")).error_code == FULL
    assert (await join(setup, protocols=saying(5000), group="other")).error_code == FULL
    assert await new_id(setup, protocols=saying(400))
    assert await heartbeat(setup, first) == 0

    refused = await join(setup, first.member_id, protocols=saying(1001))
    assert refused.error_code == FULL
    assert await heartbeat(setup, first) == 0
    assert (await join(setup, first.member_id, protocols=saying(1000))).error_code == 0
    assert (await join(setup, protocols=saying(100))).error_code == FULL
    assert (await join(setup, first.member_id, protocols=saying(500))).error_code == 0
    assert await new_id(setup, protocols=saying(500))


@in_virtual_time(subscriptions_bytes_max=1000, initial_rebalance_delay_ms=0)
async def test_a_classic_member_whose_subscription_does_not_grow_may_rejoin(
    setup: Setup,
) -> None:
    (first,) = await form(setup, 1, protocols=saying(900))
    setup.config = replace(setup.config, subscriptions_bytes_max=100)
    await setup.restart()
    again = await join(setup, first.member_id, protocols=saying(900))
    assert again.error_code == 0
    assert (await join(setup, protocols=saying(10))).error_code == FULL


@in_virtual_time(subscriptions_bytes_max=1000)
async def test_members_of_the_consumer_protocol(setup: Setup) -> None:
    names = [f"{number:0{100 - OF_EACH}}" for number in range(6)]
    first = Consumer(setup, "a", topics=names)
    assert (await first.beat()).error_code == 0
    second = Consumer(setup, "b", topics=names[:5])
    refused = await second.beat()
    assert refused.error_code == FULL
    assert "lakelog.group.subscriptions.max.bytes (1000)" in (refused.error_message or "")
    second.topics = names[:4]
    assert (await second.beat()).error_code == 0
    assert (await first.beat()).error_code == 0

    first.topics = [*names, "x"]
    assert (await first.beat()).error_code == FULL
    first.topics = names[:5]
    assert (await first.beat()).error_code == 0
    third = Consumer(setup, "c", topics=[], regex="x" * 101)
    assert (await third.beat()).error_code == FULL
    await second.beat(member_epoch=-1)
    assert (await third.beat()).error_code == 0
    await setup.restart()
    assert (await Consumer(setup, "d", topics=names[:4]).beat()).error_code == FULL


@in_virtual_time(subscriptions_bytes_max=1000)
async def test_classic_members_of_a_consumer_group(setup: Setup) -> None:
    first = Consumer(setup, "a", topics=["x" * 700])
    assert (await first.beat()).error_code == 0
    large = subscribing("orders", "y" * 240)
    member_id = await new_id(setup, protocols=large)
    assert (await join(setup, member_id, protocols=large)).error_code == FULL
    small = subscribing("orders")
    member_id = await new_id(setup, protocols=small)
    assert (await join(setup, member_id, protocols=small)).error_code == 0


@in_virtual_time(subscriptions_bytes_max=10_000, initial_rebalance_delay_ms=0)
async def test_many_empty_names_have_a_size(setup: Setup) -> None:
    for version in (3, 9):
        refused = await join(setup, protocols=(("", b""),) * 10_000, version=version)
        assert refused.error_code == FULL
    many = Consumer(setup, "a", topics=[chr(0x10000 + number) for number in range(5000)])
    assert (await many.beat()).error_code == FULL


@in_virtual_time(subscriptions_bytes_max=1000)
async def test_a_rebalance_does_not_wait_for_a_rejected_pending_member(setup: Setup) -> None:
    (first,) = await form(setup, 1, protocols=saying(600))
    member_id = await new_id(setup, protocols=saying(100), session_timeout_ms=1_800_000)
    rejoining = join(setup, first.member_id, protocols=saying(600), rebalance_timeout_ms=1_800_000)
    await asyncio.sleep(1)
    assert not rejoining.done(), "the other one may come"
    assert (await join(setup, member_id, protocols=saying(500))).error_code == FULL
    assert (await asyncio.wait_for(rejoining, 1)).error_code == 0


KEY = OffsetCommitKey(group="readers", topic="orders", partition=0)


def _generation(*members: MemberMetadata) -> GroupMetadataValue:
    return GroupMetadataValue(members=list(members))


def test_a_tombstone_takes_nothing() -> None:
    """A deleted group or offset has to return all memory that was counted for it."""
    assert stored_bytes(None) == 0
    assert offset_bytes(KEY, None) == 0


def test_each_member_counts_with_its_assignment() -> None:
    member = MemberMetadata(member_id="m", assignment=bytes(1000))
    one, two = (stored_bytes(_generation(*[member] * count)) for count in (1, 2))
    assert two - one == one - stored_bytes(_generation()) > 1000


def test_a_subscription_is_not_counted_twice() -> None:
    """`Member.memory` counts it."""
    small, large = (MemberMetadata(member_id="m", subscription=bytes(n)) for n in (1, 10_000))
    assert stored_bytes(_generation(small)) == stored_bytes(_generation(large))


@pytest.mark.parametrize(("text", "more"), [("x" * 100, 100), ("ä" * 100, 400)])
def test_metadata_of_an_offset_counts_by_its_widest_character(text: str, more: int) -> None:
    plain = offset_bytes(KEY, OffsetCommitValue(offset=1, metadata=""))
    assert offset_bytes(KEY, OffsetCommitValue(offset=1, metadata=text)) - plain == more


def test_an_offset_of_an_open_transaction_takes_more_than_a_committed_one() -> None:
    value = OffsetCommitValue(offset=1, metadata="")
    assert pending_offset_bytes(KEY, value) > offset_bytes(KEY, value)


def test_a_pending_tombstone_takes_memory_until_its_transaction_ends() -> None:
    assert pending_offset_bytes(KEY, None) > 0
