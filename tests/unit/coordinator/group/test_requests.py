"""Requests about groups: each has its own result, also for a group of another protocol or none."""

from __future__ import annotations

import asyncio

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
from lakelog.coordinator.group.config import ConsumerConfig
from lakelog.protocol.groups import (
    ConsumerGroupDescribeRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
)
from lakelog.protocol.offsets import OffsetDeleteRequest

ORDERS = ("orders", 0)


async def _consumer_codes(setup: Setup, *groups: str) -> list[tuple[str, int]]:
    request = ConsumerGroupDescribeRequest(group_ids=list(groups))
    response = await setup.coordinator.admin.consumer_group_describe(request)
    return [(each.group_id, each.error_code) for each in response.groups]


async def _delete(setup: Setup, *groups: str) -> list[tuple[str, int]]:
    request = DeleteGroupsRequest(groups_names=list(groups))
    response = await setup.coordinator.admin.delete_groups(request)
    return [(each.group_id, each.error_code) for each in response.results]


@in_virtual_time()
async def test_a_group_named_twice_is_described_once(setup: Setup) -> None:
    await form(setup, 1)
    request = DescribeGroupsRequest(groups=["b", GROUP, "b"])
    response = await setup.coordinator.admin.describe_groups(request, 5)
    assert [each.group_id for each in response.groups] == ["b", GROUP]
    assert await _consumer_codes(setup, "b", "b") == [("b", ErrorCode.GROUP_ID_NOT_FOUND)]


@in_virtual_time()
async def test_each_consumer_group_has_its_own_code(setup: Setup) -> None:
    await Consumer(setup, "m", group="modern").beat()
    assert await _consumer_codes(setup, "", "modern", "unknown") == [
        ("", ErrorCode.INVALID_GROUP_ID),
        ("modern", ErrorCode.NONE),
        ("unknown", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    setup.coordinator.close()
    assert await _consumer_codes(setup, "modern") == [("modern", ErrorCode.NOT_COORDINATOR)]


@in_virtual_time(consumer=ConsumerConfig(is_enabled=False))
async def test_without_the_consumer_protocol_no_consumer_group_is_described(setup: Setup) -> None:
    for group in ("", "modern"):
        assert await _consumer_codes(setup, group) == [(group, ErrorCode.UNSUPPORTED_VERSION)]


@in_virtual_time()
async def test_progress_has_members_and_offsets_of_every_group(setup: Setup) -> None:
    members = await form(setup, 2)
    assert await commit_codes(setup, {ORDERS: 7}, members[0]) == [0]
    await commit_codes(setup, {("clicks", 1): 3}, group="offsets")
    await Consumer(setup, "m", group="modern").beat()
    await new_id(setup, group="asked")
    found = {
        each.group_id: (
            each.members,
            {
                (topic, index): value.offset
                for topic, partitions in each.offsets.items()
                for index, value in partitions.items()
            },
        )
        for each in setup.coordinator.admin.progress()
    }
    assert found == {
        GROUP: (2, {ORDERS: 7}),
        "offsets": (0, {("clicks", 1): 3}),
        "modern": (1, {}),
    }


@in_virtual_time(partitions=3)
async def test_groups_of_several_partitions_are_deleted_in_the_order_of_the_request(
    setup: Setup,
) -> None:
    names = [f"g{number}" for number in range(9)]
    for name in names:
        await commit_codes(setup, {ORDERS: 7}, group=name)
    assert {setup.coordinator.partition_for(name) for name in names} == {0, 1, 2}
    setup.coordinator.unload_partition(1)
    expected = [
        (
            name,
            ErrorCode.NOT_COORDINATOR
            if setup.coordinator.partition_for(name) == 1
            else ErrorCode.NONE,
        )
        for name in names
    ]
    assert await _delete(setup, *names, names[0]) == expected
    assert setup.group_ids == []


@in_virtual_time()
async def test_a_group_with_the_empty_id_can_be_deleted(setup: Setup) -> None:
    """Very old clients committed offsets without a group id."""
    assert await commit_codes(setup, {ORDERS: 7}, group="") == [0]
    assert await _delete(setup, "") == [("", ErrorCode.NONE)]
    assert await committed(setup, "") == {}


@in_virtual_time()
async def test_deletions_return_the_state_of_their_coordinator(setup: Setup) -> None:
    await commit_codes(setup, {ORDERS: 7})
    request = OffsetDeleteRequest(group_id=GROUP)
    setup.coordinator.close()
    response = await setup.coordinator.admin.offset_delete(request)
    assert response.error_code == ErrorCode.NOT_COORDINATOR
    setup.log.read_barrier = asyncio.Event()
    loading = asyncio.ensure_future(setup.coordinator.load_partition(0, 0))
    await asyncio.sleep(0.1)
    response = await setup.coordinator.admin.offset_delete(request)
    assert response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert await _delete(setup, GROUP) == [(GROUP, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]
    setup.log.read_barrier.set()
    await loading
    assert await committed(setup) == {ORDERS: 7}


@in_virtual_time()
async def test_offsets_of_no_group_cannot_be_deleted(setup: Setup) -> None:
    for group, code in (
        ("", ErrorCode.INVALID_GROUP_ID),
        ("unknown", ErrorCode.GROUP_ID_NOT_FOUND),
    ):
        request = OffsetDeleteRequest(group_id=group)
        response = await setup.coordinator.admin.offset_delete(request)
        assert response.error_code == code


@in_virtual_time()
async def test_requests_to_an_unknown_group_name_an_unknown_member(setup: Setup) -> None:
    (joined,) = await form(setup, 1)
    assert await heartbeat(setup, joined, group="other") == ErrorCode.UNKNOWN_MEMBER_ID
    assert (await sync(setup, joined, group="other")).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    left = await leave(setup, (joined.member_id, None), group="other")
    assert [each.error_code for each in left.members] == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert setup.group_ids == [GROUP]


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
async def test_a_member_has_left_even_if_the_empty_group_cannot_be_written(setup: Setup) -> None:
    (member,) = await form(setup, 1)
    setup.log.fate = lambda: "refused"
    response = await leave(setup, (member.member_id, None))
    assert [each.error_code for each in response.members] == [0]
    setup.log.fate = lambda: "ok"
    assert await heartbeat(setup, member) == ErrorCode.UNKNOWN_MEMBER_ID
