"""Requests to a group of another protocol than their own, or to none."""

from __future__ import annotations

from consumer_members import Consumer
from coordinator_members import GROUP, form, heartbeat, join, leave, sync
from group_setup import Setup, in_virtual_time
from lakelog.base.errors import ErrorCode

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
async def test_a_member_has_left_even_if_the_empty_group_cannot_be_written(setup: Setup) -> None:
    (member,) = await form(setup, 1)
    setup.log.fate = lambda: "refused"
    response = await leave(setup, (member.member_id, None))
    assert [each.error_code for each in response.members] == [0]
    setup.log.fate = lambda: "ok"
    assert await heartbeat(setup, member) == ErrorCode.UNKNOWN_MEMBER_ID
