from __future__ import annotations

import asyncio

from consumer_members import Consumer, group_of, settle
from group_setup import Setup, in_virtual_time
from lakelog.base.errors import ErrorCode
from lakelog.coordinator.group.config import ConsumerConfig

AT_ONCE = ConsumerConfig(assignment_interval_ms=0)


ORDERS = b"o" * 16


@in_virtual_time(consumer=AT_ONCE)
async def test_a_silent_member_is_dropped(setup: Setup) -> None:
    one, two = Consumer(setup, "one"), Consumer(setup, "two")
    await settle(one, two)
    for _ in range(10):
        await asyncio.sleep(5)
        await one.beat()
    assert one.of() == set(range(8))
    assert (await two.ask()).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@in_virtual_time(consumer=AT_ONCE)
async def test_a_silent_member_is_dropped_although_the_log_was_full_just_then(
    setup: Setup,
) -> None:
    one, two = Consumer(setup, "one"), Consumer(setup, "two")
    await settle(one, two)
    setup.log.fate = lambda: "refused"
    for _ in range(10):
        await asyncio.sleep(5)
        await one.beat()
    assert "two" in group_of(setup).members
    setup.log.fate = lambda: "ok"
    await asyncio.sleep(1)
    await settle(one)
    assert one.of() == set(range(8))


@in_virtual_time(consumer=AT_ONCE)
async def test_a_static_member_that_stays_away_is_dropped(setup: Setup) -> None:
    one = Consumer(setup, "one", instance_id="a")
    two = Consumer(setup, "two")
    await settle(one, two)
    await one.leave(-2)
    for _ in range(10):
        await asyncio.sleep(5)
        await two.beat()
    await settle(two)
    assert two.of() == set(range(8))
    assert group_of(setup).static_members == {}


@in_virtual_time(consumer=AT_ONCE)
async def test_groups_follow_created_extended_and_deleted_topics(setup: Setup) -> None:
    one = Consumer(setup, "one", topics=["orders", "later"])
    await settle(one)
    setup.topics.topics["later"] = (b"l" * 16, 1)
    setup.coordinator.on_topics_changed({"later"}, are_new=True)
    await settle(one)
    assert one.of("later") == {0}
    setup.topics.topics["later"] = (b"l" * 16, 3)
    setup.coordinator.on_topics_changed({"later"}, are_new=False)
    await settle(one)
    assert one.of("later") == {0, 1, 2}
    epoch = one.epoch
    del setup.topics.topics["later"]
    setup.coordinator.on_topics_changed({"later"}, are_new=False)
    await settle(one)
    assert one.owned == {ORDERS: set(range(8))}
    assert one.epoch == epoch + 1


@in_virtual_time(consumer=AT_ONCE)
async def test_a_member_that_died_while_no_broker_coordinated_expires(setup: Setup) -> None:
    one, two = Consumer(setup, "one"), Consumer(setup, "two")
    await settle(one, two)
    await setup.restart()
    for _ in range(AT_ONCE.session_timeout_ms // 1000 + 1):
        await asyncio.sleep(1)
        await two.beat()
    assert set(group_of(setup).members) == {"two"}
    assert two.of() == set(range(8))
