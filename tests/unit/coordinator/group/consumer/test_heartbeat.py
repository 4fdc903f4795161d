"""ConsumerGroupHeartbeat: joining, epochs, fencing, static members, subscriptions (KIP-848)."""

from __future__ import annotations

from typing import Any

import pytest

from consumer_members import Consumer, describe, group_of, settle, snapshot
from group_setup import Setup, in_virtual_time, run
from lakelog.base.errors import ErrorCode
from lakelog.coordinator.group.config import ConsumerConfig, GroupConfig

AT_ONCE = ConsumerConfig(assignment_interval_ms=0)


CONFIG = GroupConfig(partitions=1, initial_rebalance_delay_ms=0, consumer=AT_ONCE)


ORDERS = b"o" * 16


CLICKS = b"c" * 16


@in_virtual_time(consumer=AT_ONCE)
async def test_the_first_member_gets_all_partitions(setup: Setup) -> None:
    one = Consumer(setup, "one")
    response = await one.beat()
    assert (response.error_code, response.member_id, response.member_epoch) == (0, "one", 1)
    assert response.heartbeat_interval_ms == 5000
    assert one.owned == {ORDERS: set(range(8))}
    assert group_of(setup).state == "Stable"


@in_virtual_time(consumer=AT_ONCE)
async def test_a_heartbeat_that_changes_nothing_writes_nothing(setup: Setup) -> None:
    one = Consumer(setup, "one")
    await one.beat()
    appends = setup.log.appends
    quiet: dict[str, Any] = {
        "rebalance_timeout_ms": -1,
        "subscribed_topic_names": None,
        "topic_partitions": None,
    }
    response = await one.beat(**quiet)
    assert (response.member_epoch, response.assignment) == (1, None)
    assert setup.log.appends == appends


@pytest.mark.parametrize(
    "subscribed", [{"topics": ["orders"]}, {"topics": None, "regex": "orders"}]
)
def test_a_full_heartbeat_gets_the_whole_assignment(subscribed: dict[str, Any]) -> None:
    async def scenario(setup: Setup) -> None:
        one = Consumer(setup, "one", **subscribed)
        await one.beat()
        response = await one.ask()
        (topic,) = response.assignment.topic_partitions
        assert (topic.topic_id, topic.partitions) == (ORDERS, list(range(8)))

    run(scenario, CONFIG)


@in_virtual_time(consumer=AT_ONCE)
async def test_all_members_converge_and_are_described(setup: Setup) -> None:
    members = [Consumer(setup, f"m{i}", topics=["orders", "clicks"]) for i in range(3)]
    await settle(*members)
    assert sorted(sum(map(len, each.owned.values())) for each in members) == [3, 3, 4]
    described = await describe(setup)
    assert (described.group_state, described.assignor_name) == ("Stable", "uniform")
    assert described.group_epoch == described.assignment_epoch == members[0].epoch
    for member, told in zip(members, described.members, strict=True):
        assert (told.member_id, told.member_type, told.client_host) == (
            member.member_id,
            1,
            "/127.0.0.1",
        )
        parts = {each.topic_name: set(each.partitions) for each in told.assignment.topic_partitions}
        assert parts == {t: member.of(t) for t in ("clicks", "orders") if member.of(t)}
        assert told.target_assignment == told.assignment
        assert told.subscribed_topic_names == ["clicks", "orders"]


@in_virtual_time(consumer=AT_ONCE)
async def test_members_that_leave_leave_their_partitions(setup: Setup) -> None:
    one, two = Consumer(setup, "one"), Consumer(setup, "two")
    await settle(one, two)
    epoch = one.epoch
    assert (await two.leave()).member_epoch == -1
    await settle(one)
    assert one.of() == set(range(8))
    assert one.epoch > epoch
    assert (await one.leave()).error_code == 0
    group = group_of(setup)
    assert (group.state, group.owners, group.target) == ("Empty", {}, {})
    assert (await two.ask(member_epoch=-1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@in_virtual_time(consumer=AT_ONCE)
async def test_a_stale_or_greater_epoch_is_fenced(setup: Setup) -> None:
    """KIP-848: FENCED_MEMBER_EPOCH (110); its commit gets 113 (`test_offset_access`)."""
    one, two = Consumer(setup, "one"), Consumer(setup, "two")
    await settle(one, two)
    await Consumer(setup, "three").beat()
    await settle(one, two)
    for epoch in (1, one.epoch + 1):
        response = await one.ask(member_epoch=epoch)
        assert response.error_code == ErrorCode.FENCED_MEMBER_EPOCH
        assert "must abandon all its partitions and rejoin" in response.error_message


@in_virtual_time(consumer=AT_ONCE)
async def test_the_epoch_before_is_taken_if_the_answer_may_have_been_lost(
    setup: Setup,
) -> None:
    one, two = Consumer(setup, "one"), Consumer(setup, "two")
    await one.beat()
    await two.beat()
    one.take(await one.ask())
    lost = await one.ask()
    assert lost.member_epoch == 2, "the answer that one does not get"
    again = await one.ask()
    assert (again.error_code, again.member_epoch) == (0, 2)
    kept, stranger = one.owned, {ORDERS: set(range(8))}
    one.owned = stranger
    assert (await one.ask()).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    one.owned = {**kept, CLICKS: {0}}
    assert (await one.ask()).error_code == ErrorCode.FENCED_MEMBER_EPOCH, (
        "clicks is not assigned to it"
    )


@in_virtual_time(consumer=AT_ONCE)
async def test_a_member_that_rejoins_gets_its_whole_assignment(setup: Setup) -> None:
    one = Consumer(setup, "one")
    await one.beat()
    one.epoch, one.owned = 0, {}
    response = await one.beat()
    assert response.member_epoch == 1
    assert one.of() == set(range(8))


@in_virtual_time(consumer=AT_ONCE)
async def test_unknown_groups_and_members(setup: Setup) -> None:
    stranger = Consumer(setup, "stranger", epoch=3)
    assert (await stranger.ask()).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert (await stranger.ask(member_epoch=-1)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    await Consumer(setup, "one").beat()
    assert (await stranger.ask()).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert (await stranger.ask(member_epoch=-1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@in_virtual_time(consumer=ConsumerConfig(members_max=1, assignment_interval_ms=0))
async def test_a_full_group_rejects_new_members(setup: Setup) -> None:
    one = Consumer(setup, "one")
    await one.beat()
    response = await Consumer(setup, "two").ask()
    assert response.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert (await one.ask(member_epoch=0, topic_partitions=[])).error_code == 0


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        (42, {"member_id": ""}),
        (42, {"member_id": " "}),
        (42, {"group_id": ""}),
        (42, {"group_id": " \t\x01"}),
        (42, {"instance_id": ""}),
        (42, {"rack_id": ""}),
        (42, {"rebalance_timeout_ms": -1}),
        (42, {"topic_partitions": None}),
        (42, {"subscribed_topic_names": None}),
        (42, {"member_epoch": -2}),
        (42, {"member_epoch": -3}),
        (112, {"server_assignor": "sticky"}),
        (128, {"subscribed_topic_regex": "orders[", "subscribed_topic_names": None}),
    ],
)
def test_requests_that_no_group_could_accept(code: int, changes: dict[str, Any]) -> None:
    async def scenario(setup: Setup) -> None:
        response = await Consumer(setup, "one").ask(**changes)
        assert response.error_code == code, response
        assert response.error_message
        assert snapshot(setup) == {}

    run(scenario, CONFIG)


@in_virtual_time(consumer=AT_ONCE)
async def test_before_version_1_the_coordinator_may_name_the_member(setup: Setup) -> None:
    response = await Consumer(setup, "").ask(version=0)
    assert response.error_code == 0
    assert response.member_id in group_of(setup).members


@in_virtual_time(consumer=ConsumerConfig(is_enabled=False))
async def test_the_protocol_can_be_switched_off(setup: Setup) -> None:
    response = await Consumer(setup, "one").ask()
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert (await describe(setup)).error_code == ErrorCode.UNSUPPORTED_VERSION


@in_virtual_time(consumer=AT_ONCE)
async def test_a_static_member_that_is_away_for_a_while_keeps_its_partitions(
    setup: Setup,
) -> None:
    one = Consumer(setup, "one", instance_id="a")
    two = Consumer(setup, "two")
    await settle(one, two)
    had, epoch = one.of(), group_of(setup).epoch
    assert (await one.leave(-2)).member_epoch == -2
    await settle(two)
    back = Consumer(setup, "one-again", instance_id="a")
    await back.beat()
    assert back.of() == had
    assert group_of(setup).epoch == epoch, "other members are not affected"
    assert (await one.ask(member_epoch=epoch)).error_code == ErrorCode.FENCED_INSTANCE_ID


@in_virtual_time(consumer=AT_ONCE)
async def test_an_instance_id_in_use_cannot_be_taken_over(setup: Setup) -> None:
    await Consumer(setup, "one", instance_id="a").beat()
    response = await Consumer(setup, "two", instance_id="a").ask()
    assert response.error_code == ErrorCode.UNRELEASED_INSTANCE_ID


@in_virtual_time(consumer=AT_ONCE)
async def test_a_static_member_speaks_for_its_instance_only(setup: Setup) -> None:
    one = Consumer(setup, "one", instance_id="a")
    await one.beat()
    assert (await one.ask(instance_id="b")).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert (await one.ask(member_id="x")).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert (await one.ask(member_id="x", member_epoch=-1)).error_code == 82


@in_virtual_time(consumer=AT_ONCE)
async def test_partitions_of_a_dropped_subscription_are_revoked(setup: Setup) -> None:
    one = Consumer(setup, "one", topics=["orders", "clicks"])
    await settle(one)
    one.topics = ["clicks"]
    await settle(one)
    assert one.owned == {b"c" * 16: {0, 1}}
    one.topics = []
    await settle(one)
    assert one.owned == {}
