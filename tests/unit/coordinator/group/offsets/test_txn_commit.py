"""Offsets committed with a transaction: pending until the marker, fenced by KIP-447."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from coordinator_members import GROUP, commit_codes, committed, form, join, leave
from coordinator_world import World, in_world
from lakelog.base.errors import ErrorCode
from lakelog.base.state_budget import StateAccount, StateBudget
from lakelog.coordinator.group.offsets.pending import PendingOffsets
from lakelog.coordinator.group.records.offset import (
    OffsetCommitKey,
    OffsetCommitValue,
    OffsetRecord,
)
from lakelog.coordinator.shard import TransactionMarker
from lakelog.protocol.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from lakelog.protocol.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

NONE = ErrorCode.NONE
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT
ORDERS = ("orders", 0)
MANY = 4711, 0


async def txn_commit(
    world: World, offset: int, producer: tuple[int, int] = MANY, version: int = 5, **fields: Any
) -> ErrorCode:
    partition = TxnOffsetCommitRequestPartition(
        partition_index=fields.pop("partition", 0),
        committed_offset=offset,
        committed_leader_epoch=3,
        committed_metadata="m",
    )
    topic = TxnOffsetCommitRequestTopic(
        name="orders", topic_id=fields.pop("topic_id", b"o" * 16), partitions=[partition]
    )
    request = TxnOffsetCommitRequest(
        group_id=GROUP,
        producer_id=producer[0],
        producer_epoch=producer[1],
        topics=[topic],
        **fields,
    )
    response = await world.coordinator.txn_offset_commit(request, version)
    return ErrorCode(response.topics[0].partitions[0].error_code)


async def end(world: World, producer: tuple[int, int] = MANY, *, commit: bool) -> ErrorCode:
    marker = TransactionMarker(*producer, commit, 0, 2)
    code: ErrorCode = await world.coordinator.write_marker(0, marker)
    return code


async def fetch(world: World, version: int = 9, *, stable: bool = True) -> tuple[int, int]:
    wanted = OffsetFetchRequestTopics(name="orders", topic_id=b"o" * 16, partition_indexes=[0])
    group = OffsetFetchRequestGroup(group_id=GROUP, topics=[wanted])
    request = OffsetFetchRequest(groups=[group], require_stable=stable)
    response = await world.coordinator.offset_fetch(request, version)
    found = response.groups[0].topics[0].partitions[0]
    return found.committed_offset, found.error_code


@pytest.mark.parametrize("version", [9, 10])
def test_kip_447_pending_offsets_are_unstable(version: int) -> None:
    @in_world()
    async def scenario(world: World) -> None:
        await commit_codes(world, {ORDERS: 5})
        assert await txn_commit(world, 9) == NONE
        assert await fetch(world, version) == (-1, UNSTABLE)
        assert await fetch(world, version, stable=False) == (5, NONE)
        assert await end(world, commit=True) == NONE
        assert await fetch(world, version) == (9, NONE)

    scenario()


@in_world()
async def test_an_aborted_commit_leaves_the_older_one(world: World) -> None:
    await commit_codes(world, {ORDERS: 5})
    await txn_commit(world, 9)
    await end(world, commit=False)
    assert await fetch(world) == (5, NONE)


@in_world()
async def test_pending_offsets_survive_a_restart(world: World) -> None:
    await txn_commit(world, 9)
    await world.restart()
    assert await fetch(world) == (-1, UNSTABLE)
    await world.restart()
    await end(world, commit=True)
    await world.restart()
    assert await fetch(world) == (9, NONE)
    assert (await committed(world)) == {ORDERS: 9}


@in_world()
async def test_the_last_commit_of_a_transaction_counts(world: World) -> None:
    await txn_commit(world, 9)
    await txn_commit(world, 12)
    await end(world, commit=True)
    assert await fetch(world) == (12, NONE)


@in_world()
async def test_a_commit_outside_that_came_later_in_the_log_stays(world: World) -> None:
    await txn_commit(world, 9)
    await commit_codes(world, {ORDERS: 11})
    await end(world, commit=True)
    assert await fetch(world) == (11, NONE)
    await world.restart()
    assert await fetch(world) == (11, NONE)


@in_world()
async def test_of_two_transactions_the_later_commit_stays_whichever_ends_first(
    world: World,
) -> None:
    for order in (((1, 0), (2, 0)), ((2, 0), (1, 0))):
        await txn_commit(world, 10, (1, 0))
        await txn_commit(world, 20, (2, 0))
        for producer in order:
            await end(world, producer, commit=True)
        assert await fetch(world) == (20, NONE)


@in_world()
async def test_a_marker_of_another_producer_ends_nothing(world: World) -> None:
    await txn_commit(world, 9)
    assert await end(world, (1, 0), commit=True) == NONE
    assert await fetch(world) == (-1, UNSTABLE)


@in_world()
async def test_kip_447_fencing(world: World) -> None:
    joined, *_ = await form(world, 1)
    member: dict[str, Any] = {
        "member_id": joined.member_id,
        "generation_id_or_member_epoch": joined.generation_id,
    }
    assert await txn_commit(world, 1, **member) == NONE
    for changes, code in (
        ({"generation_id_or_member_epoch": joined.generation_id - 1}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation_id_or_member_epoch": joined.generation_id + 1}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group_instance_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        assert await txn_commit(world, 1, **{**member, **changes}) == code, changes


@in_world()
async def test_a_static_member_that_was_replaced_is_fenced(world: World) -> None:
    joined = await join(world, instance_id="rock")
    fields: dict[str, Any] = {
        "member_id": "before",
        "group_instance_id": "rock",
        "generation_id_or_member_epoch": joined.generation_id,
    }
    assert await txn_commit(world, 1, **fields) == ErrorCode.FENCED_INSTANCE_ID


@in_world()
async def test_a_member_without_a_generation_is_checked_while_there_are_members(
    world: World,
) -> None:
    (member,) = await form(world, 1)
    assert await txn_commit(world, 5, member_id="stranger") == ErrorCode.UNKNOWN_MEMBER_ID
    await leave(world, (member.member_id, None))
    generation_id = member.generation_id
    late = txn_commit(
        world, 6, member_id=member.member_id, generation_id_or_member_epoch=generation_id
    )
    assert await late == ErrorCode.UNKNOWN_MEMBER_ID
    assert await txn_commit(world, 7, member_id="stranger") == NONE


@in_world()
async def test_a_client_that_names_no_member_is_fenced_by_its_epoch_alone(world: World) -> None:
    await form(world, 1)
    assert await txn_commit(world, 1, version=2) == NONE


@pytest.mark.parametrize(
    ("version", "code"), [(5, ErrorCode.ILLEGAL_GENERATION), (6, ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_a_generation_of_a_group_that_does_not_exist(version: int, code: ErrorCode) -> None:
    @in_world()
    async def scenario(world: World) -> None:
        commit = txn_commit(
            world, 1, version=version, generation_id_or_member_epoch=1, member_id="m"
        )
        assert await commit == code

    scenario()


@in_world()
async def test_partitions_that_do_not_exist(world: World) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await txn_commit(world, 1, partition=99) == unknown
    unknown_id = await txn_commit(world, 1, version=6, topic_id=b"?" * 16)
    assert unknown_id == ErrorCode.UNKNOWN_TOPIC_ID
    assert world.log.appends == 0


@in_world(offsets_retention_ms=1000, offsets_retention_check_ms=500)
async def test_pending_offsets_keep_their_group_from_expiring(world: World) -> None:
    await commit_codes(world, {ORDERS: 5})
    await txn_commit(world, 9)
    await asyncio.sleep(5)
    assert await fetch(world, stable=False) == (5, NONE)
    await end(world, commit=False)
    await asyncio.sleep(5)
    assert await fetch(world) == (-1, NONE)


@in_world()
async def test_a_marker_that_is_refused_changes_nothing(world: World) -> None:
    await txn_commit(world, 9)
    world.log.fate = lambda: "refused"
    assert await end(world, commit=True) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.log.fate = lambda: "ok"
    assert await fetch(world) == (-1, UNSTABLE)
    world.coordinator.unload_partition(0)
    assert await end(world, commit=True) == ErrorCode.NOT_COORDINATOR


def test_no_pending_offset_is_left_after_the_end() -> None:
    pending = PendingOffsets(StateAccount(StateBudget()))
    for partition in range(3):
        key = OffsetCommitKey(group="g", topic="t", partition=partition)
        pending.add(OffsetRecord(key, OffsetCommitValue(offset=1)), 7)
    assert "g" in pending
    assert len(pending.end(7, commit=True)) == 3
    assert "g" not in pending
    assert not pending.is_pending("g", "t", 0)
    assert not pending._keys
    assert pending.end(7, commit=True) == []
