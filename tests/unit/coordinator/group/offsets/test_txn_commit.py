"""Offsets committed with a transaction: pending until the marker, fenced by KIP-447."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from coordinator_members import GROUP, commit_codes, committed, form, join, leave
from group_setup import Setup, in_virtual_time
from lakelog.base.errors import ErrorCode
from lakelog.base.memory_budget import Account, Share
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
    setup: Setup,
    offset: int,
    producer: tuple[int, int] = MANY,
    version: int = 5,
    **fields: Any,
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
    response = await setup.coordinator.txn_offset_commit(request, version)
    return ErrorCode(response.topics[0].partitions[0].error_code)


async def end(setup: Setup, producer: tuple[int, int] = MANY, *, commit: bool) -> ErrorCode:
    marker = TransactionMarker(*producer, commit, 0, 2)
    code: ErrorCode = await setup.coordinator.write_marker(0, marker)
    return code


async def fetch(setup: Setup, version: int = 9, *, stable: bool = True) -> tuple[int, int]:
    wanted = OffsetFetchRequestTopics(name="orders", topic_id=b"o" * 16, partition_indexes=[0])
    group = OffsetFetchRequestGroup(group_id=GROUP, topics=[wanted])
    request = OffsetFetchRequest(groups=[group], require_stable=stable)
    response = await setup.coordinator.offset_fetch(request, version)
    found = response.groups[0].topics[0].partitions[0]
    return found.committed_offset, found.error_code


@pytest.mark.parametrize("version", [9, 10])
def test_kip_447_pending_offsets_are_unstable(version: int) -> None:
    @in_virtual_time()
    async def scenario(setup: Setup) -> None:
        await commit_codes(setup, {ORDERS: 5})
        assert await txn_commit(setup, 9) == NONE
        assert await fetch(setup, version) == (-1, UNSTABLE)
        assert await fetch(setup, version, stable=False) == (5, NONE)
        assert await end(setup, commit=True) == NONE
        assert await fetch(setup, version) == (9, NONE)

    scenario()


@in_virtual_time()
async def test_an_aborted_commit_leaves_the_older_one(setup: Setup) -> None:
    await commit_codes(setup, {ORDERS: 5})
    await txn_commit(setup, 9)
    await end(setup, commit=False)
    assert await fetch(setup) == (5, NONE)


@in_virtual_time()
async def test_pending_offsets_survive_a_restart(setup: Setup) -> None:
    await txn_commit(setup, 9)
    await setup.restart()
    assert await fetch(setup) == (-1, UNSTABLE)
    await setup.restart()
    await end(setup, commit=True)
    await setup.restart()
    assert await fetch(setup) == (9, NONE)
    assert (await committed(setup)) == {ORDERS: 9}


@in_virtual_time()
async def test_the_last_commit_of_a_transaction_counts(setup: Setup) -> None:
    await txn_commit(setup, 9)
    await txn_commit(setup, 12)
    await end(setup, commit=True)
    assert await fetch(setup) == (12, NONE)


@in_virtual_time()
async def test_a_commit_outside_that_came_later_in_the_log_stays(setup: Setup) -> None:
    await txn_commit(setup, 9)
    await commit_codes(setup, {ORDERS: 11})
    await end(setup, commit=True)
    assert await fetch(setup) == (11, NONE)
    await setup.restart()
    assert await fetch(setup) == (11, NONE)


@in_virtual_time()
async def test_of_two_transactions_the_later_commit_stays_whichever_ends_first(
    setup: Setup,
) -> None:
    for order in (((1, 0), (2, 0)), ((2, 0), (1, 0))):
        await txn_commit(setup, 10, (1, 0))
        await txn_commit(setup, 20, (2, 0))
        for producer in order:
            await end(setup, producer, commit=True)
        assert await fetch(setup) == (20, NONE)


@in_virtual_time()
async def test_a_marker_of_another_producer_ends_nothing(setup: Setup) -> None:
    await txn_commit(setup, 9)
    assert await end(setup, (1, 0), commit=True) == NONE
    assert await fetch(setup) == (-1, UNSTABLE)


@in_virtual_time()
async def test_kip_447_fencing(setup: Setup) -> None:
    joined, *_ = await form(setup, 1)
    member: dict[str, Any] = {
        "member_id": joined.member_id,
        "generation_id_or_member_epoch": joined.generation_id,
    }
    assert await txn_commit(setup, 1, **member) == NONE
    for changes, code in (
        ({"generation_id_or_member_epoch": joined.generation_id - 1}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation_id_or_member_epoch": joined.generation_id + 1}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group_instance_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        assert await txn_commit(setup, 1, **{**member, **changes}) == code, changes


@in_virtual_time()
async def test_a_static_member_that_was_replaced_is_fenced(setup: Setup) -> None:
    joined = await join(setup, instance_id="rock")
    fields: dict[str, Any] = {
        "member_id": "before",
        "group_instance_id": "rock",
        "generation_id_or_member_epoch": joined.generation_id,
    }
    assert await txn_commit(setup, 1, **fields) == ErrorCode.FENCED_INSTANCE_ID


@in_virtual_time()
async def test_a_member_without_a_generation_is_checked_while_there_are_members(
    setup: Setup,
) -> None:
    (member,) = await form(setup, 1)
    assert await txn_commit(setup, 5, member_id="stranger") == ErrorCode.UNKNOWN_MEMBER_ID
    await leave(setup, (member.member_id, None))
    generation_id = member.generation_id
    late = txn_commit(
        setup, 6, member_id=member.member_id, generation_id_or_member_epoch=generation_id
    )
    assert await late == ErrorCode.UNKNOWN_MEMBER_ID
    assert await txn_commit(setup, 7, member_id="stranger") == NONE


@in_virtual_time()
async def test_a_client_that_names_no_member_is_fenced_by_its_epoch_alone(
    setup: Setup,
) -> None:
    await form(setup, 1)
    assert await txn_commit(setup, 1, version=2) == NONE


@pytest.mark.parametrize(
    ("version", "code"), [(5, ErrorCode.ILLEGAL_GENERATION), (6, ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_a_generation_of_a_group_that_does_not_exist(version: int, code: ErrorCode) -> None:
    @in_virtual_time()
    async def scenario(setup: Setup) -> None:
        commit = txn_commit(
            setup, 1, version=version, generation_id_or_member_epoch=1, member_id="m"
        )
        assert await commit == code

    scenario()


@in_virtual_time()
async def test_partitions_that_do_not_exist(setup: Setup) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await txn_commit(setup, 1, partition=99) == unknown
    unknown_id = await txn_commit(setup, 1, version=6, topic_id=b"?" * 16)
    assert unknown_id == ErrorCode.UNKNOWN_TOPIC_ID
    assert setup.log.appends == 0


@in_virtual_time(offsets_retention_ms=1000, offsets_retention_check_ms=500)
async def test_pending_offsets_keep_their_group_from_expiring(setup: Setup) -> None:
    await commit_codes(setup, {ORDERS: 5})
    await txn_commit(setup, 9)
    await asyncio.sleep(5)
    assert await fetch(setup, stable=False) == (5, NONE)
    await end(setup, commit=False)
    await asyncio.sleep(5)
    assert await fetch(setup) == (-1, NONE)


@in_virtual_time()
async def test_a_marker_that_is_refused_changes_nothing(setup: Setup) -> None:
    await txn_commit(setup, 9)
    setup.log.fate = lambda: "refused"
    assert await end(setup, commit=True) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    setup.log.fate = lambda: "ok"
    assert await fetch(setup) == (-1, UNSTABLE)
    setup.coordinator.unload_partition(0)
    assert await end(setup, commit=True) == ErrorCode.NOT_COORDINATOR


def test_no_pending_offset_is_left_after_the_end() -> None:
    pending = PendingOffsets(Account(Share()))
    for partition in range(3):
        key = OffsetCommitKey(group="g", topic="t", partition=partition)
        pending.add(OffsetRecord(key, OffsetCommitValue(offset=1)), 7)
    assert "g" in pending
    assert len(pending.end(7, commit=True)) == 3
    assert "g" not in pending
    assert not pending.is_pending("g", "t", 0)
    assert not pending._keys
    assert pending.end(7, commit=True) == []
