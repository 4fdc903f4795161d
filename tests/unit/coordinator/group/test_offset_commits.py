"""Offsets committed with a transaction: pending until the marker, fenced by KIP-447."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from coordinator_members import (
    GROUP,
    commit,
    commit_codes,
    committed,
    committed_one,
    form,
    join,
    leave,
)
from group_setup import Setup, in_virtual_time
from lakelog.base.errors import ErrorCode
from lakelog.base.memory_budget import Account, Share
from lakelog.coordinator.group.offsets import PendingOffsets
from lakelog.coordinator.group.records import OffsetCommitKey, OffsetCommitValue, OffsetRecord
from lakelog.coordinator.shard import TransactionMarker
from lakelog.protocol.groups import JoinGroupResponse
from lakelog.protocol.offsets import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

UNKNOWN_MEMBER = ErrorCode.UNKNOWN_MEMBER_ID


ORDERS = ("orders", 0)


def _by_id(topic_id: bytes, partition: int, offset: int) -> list[OffsetCommitRequestTopic]:
    each = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
    return [OffsetCommitRequestTopic(topic_id=topic_id, partitions=[each])]


@pytest.mark.parametrize("version", range(2, 10))
def test_every_version_that_names_topics_commits(version: int) -> None:
    async def scenario(setup: Setup) -> None:
        (joined,) = await form(setup, 1)
        code = await commit_codes(setup, {ORDERS: 7}, joined, version=version, metadata="m")
        assert code == [0]
        one = await committed_one(setup, *ORDERS)
        assert (one.committed_offset, one.metadata, one.committed_leader_epoch) == (7, "m", 3)

    in_virtual_time()(scenario)()


@in_virtual_time()
async def test_offset_commit_checks_member_and_generation(setup: Setup) -> None:
    (joined,) = await form(setup, 1)
    for changes, code in (
        ({"generation_id_or_member_epoch": joined.generation_id + 1}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation_id_or_member_epoch": joined.generation_id - 1}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation_id_or_member_epoch": -1}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "stranger"}, UNKNOWN_MEMBER),
        ({"member_id": ""}, UNKNOWN_MEMBER),
        ({"group_instance_id": "nobody"}, UNKNOWN_MEMBER),
    ):
        assert await commit_codes(setup, {ORDERS: 7}, joined, **changes) == [code], changes
    assert await commit_codes(setup, {ORDERS: 7}) == [UNKNOWN_MEMBER], "a simple consumer"
    assert await committed(setup) == {}
    assert await commit_codes(setup, {ORDERS: 7}, joined) == [0]


@in_virtual_time()
async def test_a_process_that_was_replaced_may_not_commit(setup: Setup) -> None:
    first = await join(setup, instance_id="a")
    again = await join(setup, instance_id="a")
    codes = await commit_codes(setup, {ORDERS: 7}, first, group_instance_id="a")
    assert codes == [ErrorCode.FENCED_INSTANCE_ID]
    assert again.generation_id >= first.generation_id


@in_virtual_time()
async def test_during_a_rebalance(setup: Setup) -> None:
    leader, follower = await form(setup, 2)
    again = join(setup, leader.member_id)
    assert await commit_codes(setup, {ORDERS: 7}, follower) == [0], (
        "a member may commit offsets of its previous partitions"
    )
    await join(setup, follower.member_id)
    joined = await again
    codes = await commit_codes(setup, {ORDERS: 8}, joined)
    assert codes == [ErrorCode.REBALANCE_IN_PROGRESS], "before the assignment"
    codes = await commit_codes(setup, {ORDERS: 8}, leader)
    assert codes == [ErrorCode.ILLEGAL_GENERATION]
    assert await committed(setup) == {ORDERS: 7}


@in_virtual_time()
async def test_a_simple_consumer_commits_to_a_group_without_members(setup: Setup) -> None:
    assert await commit_codes(setup, {ORDERS: 7}, group="") == [0]
    assert await commit_codes(setup, {ORDERS: 8}) == [0]
    assert (await committed(setup, ""), await committed(setup)) == ({ORDERS: 7}, {ORDERS: 8})
    ghost = JoinGroupResponse(generation_id=1, member_id="ghost")
    assert await commit_codes(setup, {ORDERS: 9}, ghost) == [UNKNOWN_MEMBER]
    for version, code in ((8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)):
        codes = await commit_codes(setup, {ORDERS: 9}, ghost, group="other", version=version)
        assert codes == [code]


@in_virtual_time(offset_metadata_max=4)
async def test_each_invalid_offset_is_rejected_on_its_own(setup: Setup) -> None:
    codes = await commit_codes(
        setup, {ORDERS: 1, ("orders", 8): 1, ("orders", -1): 1, ("nowhere", 0): 1}
    )
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [0, unknown, unknown, unknown]
    for metadata, code in (("1234", 0), ("12345", 12), ("ab\U0001f600", 0), ("abc\U0001f600", 12)):
        assert await commit_codes(setup, {("orders", 1): 2}, metadata=metadata) == [code]
    assert await commit_codes(setup, {("orders", 2): 3}, metadata=None) == [0]
    assert await committed(setup) == {ORDERS: 1, ("orders", 1): 2, ("orders", 2): 3}


@in_virtual_time()
async def test_v10_names_topics_by_id(setup: Setup) -> None:
    topics = _by_id(b"o" * 16, 0, 7) + _by_id(b"x" * 16, 0, 8) + _by_id(b"c" * 16, 2, 9)
    response = await commit(setup, {}, version=10, topics=topics)
    assert [(each.topic_id, each.partitions[0].error_code) for each in response.topics] == [
        (b"o" * 16, 0),
        (b"x" * 16, ErrorCode.UNKNOWN_TOPIC_ID),
        (b"c" * 16, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert await committed(setup) == {ORDERS: 7}


@in_virtual_time()
async def test_a_commit_keeps_its_member_alive(setup: Setup) -> None:
    (joined,) = await form(setup, 1)
    for offset in range(5):
        await asyncio.sleep(8)
        assert await commit_codes(setup, {ORDERS: offset}, joined) == [0]


@in_virtual_time()
async def test_a_commit_of_nothing_writes_nothing(setup: Setup) -> None:
    response = await commit(setup, {})
    assert (response.topics, setup.log.appends) == ([], 0)


NONE = ErrorCode.NONE
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT
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
