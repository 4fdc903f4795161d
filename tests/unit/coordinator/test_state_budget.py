"""The memory of the state that clients cause in the coordinators: its estimate and its limits.

Each case creates state through the coordinator and compares the estimate with `tracemalloc`.
"""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import transaction_setup
from consumer_members import Consumer
from coordinator_members import commit_codes, committed, form, heartbeat, join, leave, new_id, sync
from group_setup import FakeLog, Setup, in_virtual_time
from lakelog.base.errors import ErrorCode
from lakelog.base.memory_budget import Share
from lakelog.coordinator.shard import TransactionMarker
from lakelog.protocol.consumer_protocol import ConsumerProtocolSubscription, encode_versioned
from lakelog.protocol.groups import DeleteGroupsRequest
from lakelog.protocol.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from lakelog.records.batch import read_header

FULL = ErrorCode.GROUP_MAX_SIZE_REACHED


TOO_LARGE = ErrorCode.INVALID_COMMIT_OFFSET_SIZE


AGAINST_POLICY = ErrorCode.POLICY_VIOLATION


ORDERS = ("orders", 0)


WIDE = 500
"""Partitions of the topic `wide`."""


Scenario = Callable[[Setup, str], Coroutine[Any, Any, None]]


class ForgetfulLog(FakeLog):
    """Its contents are not the coordinator's memory."""

    def _store(self, partition: int, batch: bytearray) -> int:
        base_offset = self.ends.get(partition, 0)
        self.ends[partition] = base_offset + read_header(batch).last_offset + 1
        return base_offset


def wide_commit(group: str, metadata_size: int, partitions: int = WIDE) -> OffsetCommitRequest:
    """Each text is an object of its own, as in a decoded request."""
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        topics=[
            OffsetCommitRequestTopic(
                name="wide",
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=1_000_000 + index,
                        committed_metadata=f"{index:0{metadata_size}}" if metadata_size else "",
                    )
                    for index in range(partitions)
                ],
            )
        ],
    )


async def one_commit(setup: Setup, name: str) -> None:
    for number in range(150):
        assert await commit_codes(setup, {ORDERS: 1000 + number}, group=f"{name}-{number}") == [0]


async def wide_offsets(setup: Setup, name: str) -> None:
    await setup.coordinator.offset_commit(wide_commit(name, 0), 9)


async def wide_offsets_with_text(setup: Setup, name: str) -> None:
    await setup.coordinator.offset_commit(wide_commit(name, 4096), 9)


async def large_joins(setup: Setup, name: str) -> None:
    for number in range(5):
        protocols = (("range", bytes(200_000)), ("sticky", bytes(100_000)))
        await join(setup, group=f"{name}-{number}", version=3, protocols=protocols)


async def stable_groups(setup: Setup, name: str) -> None:
    for number in range(30):
        await form(setup, 2, group=f"{name}-{number}", client_id=f"client {number}" * 4)


async def large_assignments(setup: Setup, name: str) -> None:
    for number in range(6):
        group = f"{name}-{number}"
        joined = await join(setup, group=group, version=3)
        await sync(setup, joined, {joined.member_id: bytes(100_000)}, group=group)


async def static_members(setup: Setup, name: str) -> None:
    for number in range(10):
        instance_id = f"{name}-{number:020000}"
        await join(setup, group=f"{name}-{number}", instance_id=instance_id)


async def ids_given_out(setup: Setup, name: str) -> None:
    for number in range(150):
        await new_id(setup, group=f"{name}-{number}", session_timeout_ms=1_800_000)


async def consumers(setup: Setup, name: str) -> None:
    for number in range(10):
        await Consumer(setup, f"m-{number}", topics=["wide"], group=f"{name}-{number}").beat()


async def small_consumers(setup: Setup, name: str) -> None:
    for number in range(60):
        await Consumer(setup, f"m-{number}", group=f"{name}-{number}").beat()


async def racks(setup: Setup, name: str) -> None:
    for number in range(15):
        one = Consumer(setup, f"m-{number}", group=f"{name}-{number}", topics=["orders"])
        assert (await one.beat(rack_id=f"{number:030000}")).error_code == 0


async def many_names(setup: Setup, name: str) -> None:
    for number in range(5):
        topics = [f"{name}-{number}-{each}" for each in range(1000)]
        await Consumer(setup, f"m-{number}", topics=topics, group=f"{name}-{number}").beat()


async def pending_offsets(setup: Setup, name: str) -> None:
    for number in range(3):
        wide = wide_commit(name, 50).topics[0].partitions
        request = TxnOffsetCommitRequest(
            group_id=name,
            producer_id=5000 + number,
            producer_epoch=0,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name="wide",
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=each.partition_index,
                            committed_offset=each.committed_offset,
                            committed_metadata=each.committed_metadata,
                        )
                        for each in wide
                    ],
                )
            ],
        )
        await setup.coordinator.txn_offset_commit(request, 5)


SHAPES: list[Scenario] = [
    one_commit,
    wide_offsets,
    wide_offsets_with_text,
    large_joins,
    stable_groups,
    large_assignments,
    static_members,
    ids_given_out,
    consumers,
    small_consumers,
    racks,
    many_names,
    pending_offsets,
]


async def traced(setup: Any, shape: Coroutine[Any, Any, None]) -> tuple[int, int]:
    """Return measured and estimated bytes of a case."""
    gc.collect()
    gc.freeze()  # so that the second collection visits the new objects only
    before, counted = tracemalloc.get_traced_memory()[0], setup.memory.used
    await shape
    gc.collect()
    return tracemalloc.get_traced_memory()[0] - before, setup.memory.used - counted


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_the_count_is_near_the_truth(shape: Scenario) -> None:
    @in_virtual_time(groups_max=100_000)
    async def scenario(setup: Setup) -> None:
        setup.log = ForgetfulLog()
        setup.topics.topics["wide"] = (b"w" * 16, WIDE)
        setup.coordinator.close()
        setup.coordinator = setup.new_coordinator()
        await setup.start()
        await shape(setup, "warm")
        tracemalloc.start()
        try:
            taken, counted = await traced(setup, shape(setup, "traced"))
        finally:
            tracemalloc.stop()
        assert taken < counted < 3 * taken, f"{counted / taken:.2f}"

    scenario()


async def many_ids(setup: transaction_setup.Setup, name: str) -> None:
    for number in range(100):
        await setup.ready(f"{name}-{number}")


async def wide_transactions(setup: transaction_setup.Setup, name: str) -> None:
    for number in range(4):
        producer = await setup.ready(f"{name}-{number}")
        partitions = [(f"{'wide' * 10}", index) for index in range(500)]
        await setup.add(producer, *partitions, transactional_id=f"{name}-{number}")


@pytest.mark.parametrize("shape", [many_ids, wide_transactions], ids=lambda shape: shape.__name__)
def test_transactions_are_counted_near_the_truth(shape: Any) -> None:
    @transaction_setup.in_virtual_time()
    async def scenario(setup: transaction_setup.Setup) -> None:
        setup.log = ForgetfulLog()
        setup.coordinator.close()
        setup.coordinator = setup.new_coordinator()
        for partition in range(setup.config.partitions):
            await setup.coordinator.load_partition(partition, setup.epoch)
        await shape(setup, "warm")
        tracemalloc.start()
        try:
            taken, counted = await traced(setup, shape(setup, "traced"))
        finally:
            tracemalloc.stop()
        assert taken < counted < 3 * taken, f"{counted / taken:.2f}"

    scenario()


async def with_memory(setup: Setup, bytes_max: int) -> None:
    """Return the same broker with another budget."""
    setup.memory = Share(bytes_max)
    await setup.restart()


def protocols(size: int) -> tuple[tuple[str, bytes], ...]:
    return (("range", bytes(size)),)


@in_virtual_time()
async def test_joins_beyond_the_budget_are_rejected_and_existing_members_continue(
    setup: Setup,
) -> None:
    await with_memory(setup, 1 << 20)
    (first,) = await form(setup, 1, group="first", protocols=protocols(100_000))
    assert await commit_codes(setup, {ORDERS: 1}, first, group="first") == [0]
    joined = {}
    for number in range(20):
        answer = await join(setup, group=f"g{number}", version=3, protocols=protocols(100_000))
        if answer.error_code == FULL:
            break
        joined[f"g{number}"] = answer
    assert 5 < len(joined) < 10
    assert setup.memory.used <= 1 << 20

    assert await heartbeat(setup, first, group="first") == 0
    assert await commit_codes(setup, {ORDERS: 2}, first, group="first") == [0]
    more = Consumer(setup, "m", topics=["x" * 5000 + str(each) for each in range(20)], group="c")
    refused = await more.beat()
    assert refused.error_code == FULL
    assert "lakelog.coordinator.state.max.bytes" in (refused.error_message or "")

    group, member = joined.popitem()
    await leave(setup, (member.member_id, None), group=group)
    assert (await join(setup, group="h", version=3, protocols=protocols(90_000))).error_code == 0


@in_virtual_time()
async def test_one_group_takes_no_more_than_its_share(setup: Setup) -> None:
    await with_memory(setup, 1 << 20)
    assert (await join(setup, version=3, protocols=protocols(140_000))).error_code == FULL
    assert (await join(setup, version=3, protocols=protocols(100_000))).error_code == 0
    assert (await join(setup, version=3, protocols=protocols(100_000))).error_code == FULL
    setup.topics.topics["wide"] = (b"w" * 16, WIDE)
    large = await setup.coordinator.offset_commit(wide_commit("offsets", 4000, 40), 9)
    assert {each.error_code for each in large.topics[0].partitions} == {TOO_LARGE}
    for _ in range(3):
        same = await setup.coordinator.offset_commit(wide_commit("offsets", 4000, 25), 9)
        assert {each.error_code for each in same.topics[0].partitions} == {0}


@in_virtual_time()
async def test_an_assignment_is_accepted_when_there_is_room_again(setup: Setup) -> None:
    await with_memory(setup, 1 << 20)
    others = []
    for number in range(9):
        answer = await join(setup, group=f"g{number}", version=3, protocols=protocols(100_000))
        others.append((f"g{number}", answer.member_id))
    joined = await join(setup, group="a", version=3)
    given = {joined.member_id: bytes(120_000), "nobody": bytes(120_000)}
    refused = await sync(setup, joined, given, group="a")
    assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    for group, member_id in others[:3]:
        await leave(setup, (member_id, None), group=group)
    again = await join(setup, joined.member_id, group="a", version=3)
    assert again.error_code == 0
    synced = await sync(setup, again, given, group="a")
    assert (synced.error_code, len(synced.assignment)) == (0, 120_000)


@in_virtual_time()
async def test_a_log_is_loaded_even_beyond_the_budget(setup: Setup) -> None:
    (member,) = await form(setup, 1, group="a", protocols=protocols(200_000))
    setup.topics.topics["wide"] = (b"w" * 16, WIDE)
    await setup.coordinator.offset_commit(wide_commit("b", 1000, 200), 9)
    before = setup.memory.used
    await with_memory(setup, 100_000)
    assert before / 2 < setup.memory.used < before * 2
    assert setup.coordinator.loading == []
    assert len(await committed(setup, "b")) == 200
    assert await heartbeat(setup, member, group="a") == 0
    assert await commit_codes(setup, {ORDERS: 1}, group="c") == [TOO_LARGE]
    answer = await setup.coordinator.offset_commit(wide_commit("b", 900, 200), 9)
    assert {each.error_code for each in answer.topics[0].partitions} == {0}
    await setup.coordinator.admin.delete_groups(DeleteGroupsRequest(groups_names=["b"]))
    await leave(setup, (member.member_id, None), group="a")
    assert await commit_codes(setup, {ORDERS: 1}, group="c") == [0]


@in_virtual_time()
async def test_nothing_is_counted_when_nothing_is_left(setup: Setup) -> None:
    setup.topics.topics["wide"] = (b"w" * 16, WIDE)
    (classic,) = await form(setup, 1, group="classic")
    await join(setup, instance_id="i", group="static", rebalance_timeout_ms=1000)
    await join(setup, instance_id="i", group="static", client_id="another")
    subscription = encode_versioned(ConsumerProtocolSubscription(topics=["orders"]), 0)
    one = Consumer(setup, "m", topics=None, regex="or.*", group="consumer")
    await one.beat()
    await one.beat(rack_id="r")
    mixed = await new_id(setup, group="consumer", protocols=(("range", subscription),))
    await join(setup, mixed, group="consumer", protocols=(("range", subscription),))
    await pending_offsets(setup, "pending")
    await pending_offsets(setup, "pending")
    await one_commit(setup, "one")
    await new_id(setup, group="never")
    assert await commit_codes(setup, {ORDERS: 1}, classic, group="classic", metadata="ä" * 9) == [0]
    assert setup.memory.used > 300_000

    await leave(setup, (classic.member_id, None), group="classic")
    await leave(setup, ("", "i"), group="static")
    await leave(setup, (mixed, None), group="consumer")
    await one.leave()
    for producer_id in (5000, 5001, 5002):
        marker = TransactionMarker(producer_id, 0, producer_id == 5000, 0, 2)
        assert await setup.coordinator.write_marker(0, marker) == 0
    setup.clock.leap(8 * 24 * 3_600_000)
    names = [*setup.group_ids, "pending"]
    await setup.coordinator.admin.delete_groups(DeleteGroupsRequest(groups_names=names))
    await asyncio.sleep(20)
    assert setup.memory.used == 0


@in_virtual_time(groups_max=100, partitions=4)
async def test_a_flood_of_groups_locks_no_client_out(setup: Setup) -> None:
    for number in range(20):
        assert await commit_codes(setup, {ORDERS: 7}, group=f"batch job {number}") == [0]
    for _ in range(5):
        for number in range(10):
            assert await commit_codes(setup, {ORDERS: 7}, group=f"in use {number}") == [0]
        await asyncio.sleep(20)
    for number in range(70):
        assert await commit_codes(setup, {ORDERS: 7}, group=f"flood {number}") == [0]
    assert await commit_codes(setup, {ORDERS: 7}, group="new") == [AGAINST_POLICY]
    (member,) = await form(setup, 1, group="new with a member")
    assert await commit_codes(setup, {ORDERS: 7}, member, group="new with a member") == [0]

    for _ in range(27):
        await asyncio.sleep(5)
        assert await heartbeat(setup, member, group="new with a member") == 0
    for number in range(30):
        assert await commit_codes(setup, {ORDERS: 7}, group=f"later {number}") == [0], number
    await asyncio.sleep(1)
    kept = [*(f"batch job {each}" for each in range(20)), *(f"in use {each}" for each in range(10))]
    for group in [*kept, *(f"later {each}" for each in range(30)), "new with a member"]:
        assert await committed(setup, group) == {ORDERS: 7}, group
    left = [await committed(setup, f"flood {number}") for number in range(70)]
    assert 35 <= left.count({ORDERS: 7}) <= 45
    assert setup.coordinator.counts.groups_evicted == 70 - left.count({ORDERS: 7})
    await setup.restart()
    assert await committed(setup, kept[0]) == {ORDERS: 7}
    assert await committed(setup, "flood 69") == {}


@in_virtual_time(groups_max=1000)
async def test_a_flood_of_large_offsets_locks_no_client_out(setup: Setup) -> None:
    await with_memory(setup, 1 << 20)
    setup.topics.topics["wide"] = (b"w" * 16, WIDE)
    assert await commit_codes(setup, {ORDERS: 7}, group="old") == [0]
    await asyncio.sleep(10)
    codes = []
    for number in range(12):
        answer = await setup.coordinator.offset_commit(wide_commit(f"flood {number}", 4000, 25), 9)
        codes.append(answer.topics[0].partitions[0].error_code)
    assert codes[:9] == [0] * 9
    assert codes[-1] == TOO_LARGE
    await asyncio.sleep(131)
    answer = await setup.coordinator.offset_commit(wide_commit("new", 4000, 25), 9)
    assert answer.topics[0].partitions[0].error_code == 0
    await asyncio.sleep(1)
    assert len(await committed(setup, "new")) == 25
    assert await committed(setup, "old") == {ORDERS: 7}
    assert setup.memory.used <= 1 << 20
    assert setup.memory.leaving == 0


@in_virtual_time(groups_max=4)
async def test_members_and_open_transactions_keep_a_probationary_group(setup: Setup) -> None:
    (member,) = await form(setup, 1, group="has a member")
    assert await commit_codes(setup, {ORDERS: 7}, member, group="has a member") == [0]
    for group in ("a", "b", "c"):
        assert await commit_codes(setup, {ORDERS: 7}, group=group) == [0]
    await new_id(setup, group="a", session_timeout_ms=1_000_000)
    setup.topics.topics["wide"] = (b"w" * 16, WIDE)
    await pending_offsets(setup, "b")
    for _ in range(27):
        await asyncio.sleep(5)
        assert await heartbeat(setup, member, group="has a member") == 0
    assert await commit_codes(setup, {ORDERS: 7}, group="d") == [0]
    assert await commit_codes(setup, {ORDERS: 7}, group="e") == [AGAINST_POLICY]
    assert await committed(setup, "c") == {}
    assert await committed(setup, "a") == {ORDERS: 7}
