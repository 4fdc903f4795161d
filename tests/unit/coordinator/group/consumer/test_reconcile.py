from __future__ import annotations

import asyncio

from consumer_members import Consumer, settle
from group_setup import Setup, in_virtual_time
from lakelog.base.errors import ErrorCode
from lakelog.coordinator.group.config import ConsumerConfig

AT_ONCE = ConsumerConfig(assignment_interval_ms=0)


@in_virtual_time(consumer=AT_ONCE)
async def test_a_member_gets_partitions_after_another_has_revoked_them(setup: Setup) -> None:
    one, two = Consumer(setup, "one"), Consumer(setup, "two")
    await one.beat()
    response = await two.beat()
    assert (response.member_epoch, two.owned) == (2, {}), "nothing is free yet"
    before = one.of()
    response = await one.ask()
    assert response.member_epoch == 1, "it keeps its epoch while it gives up"
    keeps = set(response.assignment.topic_partitions[0].partitions)
    assert keeps < before
    assert (await two.beat()).member_epoch == 2
    assert two.owned == {}, "one has not reported that it revoked partitions"
    one.take(response)
    assert (await one.beat()).member_epoch == 2
    await two.beat()
    assert (len(one.of()), len(two.of())) == (4, 4)
    assert one.of() | two.of() == set(range(8))


@in_virtual_time(consumer=AT_ONCE)
async def test_a_member_that_does_not_give_up_in_time_is_dropped(setup: Setup) -> None:
    one = Consumer(setup, "one", rebalance_timeout_ms=12_000)
    two = Consumer(setup, "two")
    await one.beat()
    await two.beat()
    await one.ask()
    for _ in range(3):
        await asyncio.sleep(5)
        response = await one.ask()
        await two.beat()
    assert response.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    await settle(two)
    assert two.of() == set(range(8))
