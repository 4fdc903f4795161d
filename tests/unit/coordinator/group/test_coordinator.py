"""The group coordinator as the broker uses it: ownership, markers, deleted topics."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from consumer_members import Consumer
from coordinator_members import GROUP, commit_codes, committed, form, join, leave, sync
from group_setup import Setup, in_virtual_time
from lakelog.base.errors import ErrorCode
from lakelog.coordinator.group.config import ConsumerConfig
from lakelog.coordinator.shard import TransactionMarker
from lakelog.protocol.groups import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
)
from lakelog.protocol.offsets import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

ORDERS = ("orders", 0)
COMMIT = TransactionMarker(1000, 0, True, 0, 2)


async def _commit_in_transaction(setup: Setup, offset: int = 7) -> list[int]:
    partition = TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    request = TxnOffsetCommitRequest(
        group_id=GROUP,
        producer_id=1000,
        producer_epoch=0,
        topics=[TxnOffsetCommitRequestTopic(name="orders", partitions=[partition])],
    )
    response: Any = await setup.coordinator.txn_offset_commit(request, 5)
    return [each.error_code for topic in response.topics for each in topic.partitions]


async def _codes(setup: Setup, group: str) -> list[int]:
    """Return the code of each request of a member."""
    joined = JoinGroupResponse(member_id="m", generation_id=1)
    beat = HeartbeatRequest(group_id=group, generation_id=1, member_id="m")
    modern = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=["orders"],
        topic_partitions=[],
    )
    coordinator = setup.coordinator
    return [
        (await join(setup, group=group)).error_code,
        (await sync(setup, joined, group=group)).error_code,
        (await coordinator.heartbeat(beat, 4)).error_code,
        (await leave(setup, ("m", None), group=group)).error_code,
        (await coordinator.consumer_group_heartbeat(modern, 1, "", "")).error_code,
    ]


@in_virtual_time()
async def test_without_the_partition_each_request_makes_the_client_search(setup: Setup) -> None:
    setup.coordinator.close()
    assert await _codes(setup, GROUP) == [ErrorCode.NOT_COORDINATOR] * 5
    assert await commit_codes(setup, {ORDERS: 7}) == [ErrorCode.NOT_COORDINATOR]
    assert await _commit_in_transaction(setup) == [ErrorCode.NOT_COORDINATOR]


@in_virtual_time()
async def test_members_need_a_group_id_and_offsets_do_not(setup: Setup) -> None:
    codes = await _codes(setup, "")
    assert codes[:4] == [ErrorCode.INVALID_GROUP_ID] * 4
    assert codes[4] == ErrorCode.INVALID_REQUEST
    assert await commit_codes(setup, {ORDERS: 7}, group="") == [0]


@in_virtual_time()
async def test_while_loading_only_a_heartbeat_of_a_classic_member_succeeds(setup: Setup) -> None:
    """The member keeps its assignment instead of joining again."""
    setup.coordinator.close()
    setup.log.read_barrier = asyncio.Event()
    loading = asyncio.ensure_future(setup.coordinator.load_partition(0, 0))
    await asyncio.sleep(0.1)
    in_progress = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    codes = await _codes(setup, GROUP)
    assert codes == [in_progress, in_progress, 0, in_progress, in_progress]
    assert await commit_codes(setup, {ORDERS: 7}) == [in_progress]
    setup.coordinator.on_topics_deleted([("orders", b"o" * 16)])
    setup.log.read_barrier.set()
    await loading


@in_virtual_time(consumer=ConsumerConfig(is_enabled=False))
async def test_the_consumer_protocol_can_be_switched_off(setup: Setup) -> None:
    response = await Consumer(setup, "m").beat()
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION


@in_virtual_time()
async def test_before_version_3_the_response_of_leave_group_has_the_code(setup: Setup) -> None:
    request = LeaveGroupRequest(group_id=GROUP, member_id="unknown")
    response = await setup.coordinator.leave_group(request, 2)
    assert response.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    (member,) = await form(setup, 1)
    request = LeaveGroupRequest(group_id=GROUP, member_id=member.member_id)
    assert (await setup.coordinator.leave_group(request, 2)).error_code == 0


@in_virtual_time()
async def test_offsets_of_a_transaction_are_committed_by_its_marker(setup: Setup) -> None:
    assert await _commit_in_transaction(setup) == [0]
    assert await setup.coordinator.write_marker(0, COMMIT) == ErrorCode.NONE
    assert await committed(setup) == {ORDERS: 7}
    assert await _commit_in_transaction(setup, 8) == [0]
    abort = COMMIT._replace(commit=False)
    assert await setup.coordinator.write_marker(0, abort) == ErrorCode.NONE
    assert await committed(setup) == {ORDERS: 7}


@in_virtual_time()
async def test_a_marker_that_is_not_written_returns_its_code(setup: Setup) -> None:
    assert await _commit_in_transaction(setup) == [0]
    setup.log.fate = lambda: "refused"
    assert await setup.coordinator.write_marker(0, COMMIT) != ErrorCode.NONE
    setup.log.fate = lambda: "ok"
    assert await setup.coordinator.write_marker(0, COMMIT) == ErrorCode.NONE
    assert await committed(setup) == {ORDERS: 7}
    setup.coordinator.close()
    assert await setup.coordinator.write_marker(0, COMMIT) == ErrorCode.NOT_COORDINATOR


@in_virtual_time(partitions=3)
async def test_offsets_of_a_deleted_topic_are_deleted_in_all_partitions(setup: Setup) -> None:
    names = [f"g{number}" for number in range(6)]
    for name in names:
        await commit_codes(setup, {ORDERS: 7, ("clicks", 0): 1}, group=name)
    setup.coordinator.on_topics_deleted([("orders", b"o" * 16)])
    await asyncio.sleep(0.1)
    for name in names:
        assert await committed(setup, name) == {("clicks", 0): 1}


@in_virtual_time()
async def test_offsets_of_a_new_topic_of_the_same_name_stay(setup: Setup) -> None:
    setup.topics.topics["orders"] = (b"n" * 16, 8)
    await commit_codes(setup, {ORDERS: 7})
    setup.coordinator.on_topics_deleted([("orders", b"o" * 16)])
    await asyncio.sleep(0.1)
    assert await committed(setup) == {ORDERS: 7}


@in_virtual_time(partitions=2)
async def test_the_broker_sees_the_partitions_and_their_leader_epochs(setup: Setup) -> None:
    coordinator = setup.coordinator
    assert (sorted(coordinator.partitions), coordinator.loading) == ([0, 1], [])
    coordinator.unload_partition(1)
    assert coordinator.partitions == [0]
    await coordinator.load_partition(1, 5)
    assert (coordinator.leader_epoch(0), coordinator.leader_epoch(1)) == (0, 5)
    assert coordinator.leader_epoch(2) is None


AGAINST_POLICY = ErrorCode.POLICY_VIOLATION
FULL = {"groups_max": 3, "partitions": 4}


async def _commit(setup: Setup, group: str) -> int:
    (code,) = await commit_codes(setup, {ORDERS: 7}, group=group)
    return code


@pytest.mark.parametrize("wait_s", [0, 131])
def test_a_new_group_replaces_a_probationary_group_after_two_minutes(wait_s: int) -> None:
    @in_virtual_time(**FULL)
    async def scenario(setup: Setup) -> None:
        for group in ("a", "b", "c"):
            assert await _commit(setup, group) == 0
            await asyncio.sleep(0.1)
        await asyncio.sleep(wait_s)
        assert await _commit(setup, "new") == (0 if wait_s else AGAINST_POLICY)
        await asyncio.sleep(1)
        left = [group for group in ("a", "b", "c") if await committed(setup, group)]
        assert left == (["a", "b"] if wait_s else ["a", "b", "c"]), "the newest is evicted"
        assert setup.coordinator.counts.groups_evicted == bool(wait_s)

    scenario()


@in_virtual_time(**FULL)
async def test_groups_that_committed_again_and_groups_with_members_stay(setup: Setup) -> None:
    for group in ("in use", "a"):
        assert await _commit(setup, group) == 0
    (member,) = await form(setup, 1, group="member", session_timeout_ms=1_000_000)
    assert await commit_codes(setup, {ORDERS: 7}, member, group="member") == [0]
    await asyncio.sleep(11)
    assert await _commit(setup, "in use") == 0
    await asyncio.sleep(131)
    assert await _commit(setup, "new") == 0
    await asyncio.sleep(1)
    assert await committed(setup, "a") == {}
    assert await _commit(setup, "another") == AGAINST_POLICY
    assert await committed(setup, "in use") == await committed(setup, "member") == {ORDERS: 7}


@in_virtual_time(**FULL)
async def test_a_search_without_a_result_is_not_repeated_within_a_second(setup: Setup) -> None:
    """Each search visits every probationary group, so a flood of requests must not repeat it."""
    for group in ("a", "b", "c"):
        assert await _commit(setup, group) == 0
    evictor = setup.coordinator._evictor
    evictor.evict("new", 1, 0)
    setup.clock.leap(600_000)
    evictor.evict("new", 1, 0)
    await asyncio.sleep(0.5)
    assert setup.coordinator.counts.groups_evicted == 0
    await asyncio.sleep(0.6)
    evictor.evict("new", 1, 0)
    await asyncio.sleep(0.1)
    assert setup.coordinator.counts.groups_evicted == 1


@in_virtual_time(partitions=4)
async def test_eviction_stops_at_the_wanted_groups_or_bytes(setup: Setup) -> None:
    for number in range(6):
        assert await _commit(setup, f"g{number}") == 0
    setup.clock.leap(600_000)
    evictor = setup.coordinator._evictor
    evictor.evict("new", 2, 0)
    await asyncio.sleep(0.1)
    assert setup.coordinator.counts.groups_evicted == 2
    evictor.evict("new", 0, 1)
    await asyncio.sleep(0.1)
    assert setup.coordinator.counts.groups_evicted == 3
    evictor.evict("new", 0, setup.memory.used)
    await asyncio.sleep(0.1)
    assert setup.coordinator.counts.groups_evicted == 6


@in_virtual_time()
async def test_the_group_that_needs_the_room_is_not_evicted(setup: Setup) -> None:
    assert await _commit(setup, "a") == 0
    setup.clock.leap(600_000)
    setup.coordinator._evictor.evict("a", 1, 0)
    await asyncio.sleep(0.1)
    assert await committed(setup, "a") == {ORDERS: 7}
