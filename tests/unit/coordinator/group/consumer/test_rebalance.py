from __future__ import annotations

import asyncio

import pytest

from consumer_members import Consumer, describe, group_of, settle
from group_setup import Setup, in_virtual_time
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.config import ConsumerConfig
from lakelog.coordinator.group.consumer.rebalance import check_regex, matching
from lakelog.protocol.groups import ConsumerGroupHeartbeatResponse
from lakelog.wire.codec import decode, encode

AT_ONCE = ConsumerConfig(assignment_interval_ms=0)


@in_virtual_time(consumer=AT_ONCE)
async def test_most_members_choose_the_assignor(setup: Setup) -> None:
    members = [Consumer(setup, f"m{i}", assignor="range") for i in range(2)]
    await settle(*members)
    assert (await describe(setup)).assignor_name == "range"
    assert members[0].of() == {0, 1, 2, 3}


@in_virtual_time(consumer=AT_ONCE)
async def test_on_a_tie_the_first_assignor_in_alphabetical_order_is_chosen(
    setup: Setup,
) -> None:
    uniform = [Consumer(setup, f"u{i}", assignor="uniform") for i in range(2)]
    ranged = [Consumer(setup, f"r{i}", assignor="range") for i in range(2)]
    await settle(*uniform, ranged[0])
    assert (await describe(setup)).assignor_name == "uniform", "two members against one"
    await settle(ranged[1])
    assert (await describe(setup)).assignor_name == "range"


@in_virtual_time(consumer=ConsumerConfig(assignment_interval_ms=1000))
async def test_assignments_are_made_at_intervals(setup: Setup) -> None:
    one, two = Consumer(setup, "one"), Consumer(setup, "two")
    await one.beat()
    response = await two.beat()
    assert response.member_epoch == 1, "the last assignment is too recent for another"
    assert group_of(setup).state == "Assigning"
    await asyncio.sleep(1)
    await settle(one, two)
    assert (len(one.of()), len(two.of())) == (4, 4)


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


ORDERS = b"o" * 16


@in_virtual_time(consumer=AT_ONCE)
async def test_an_expression_is_matched_against_whole_names(setup: Setup) -> None:
    one = Consumer(setup, "one", topics=None, regex="or.*|click")
    await settle(one)
    assert one.owned == {ORDERS: set(range(8))}
    described = await describe(setup)
    assert described.members[0].subscribed_topic_regex == "or.*|click"
    setup.topics.topics["oranges"] = (b"r" * 16, 2)
    setup.topics.changes += 1
    setup.coordinator.on_topics_changed({"oranges"}, are_new=True)
    await one.beat()
    assert one.of("oranges") == set(), "expressions are not resolved again at once"
    await asyncio.sleep(11)
    await settle(one)
    assert one.of("oranges") == {0, 1}
    one.regex = ""
    one.topics = ["clicks"]
    await settle(one)
    assert one.owned == {b"c" * 16: {0, 1}}
    assert group_of(setup).regexes == {}


@in_virtual_time(consumer=AT_ONCE)
async def test_members_with_one_expression_share_its_topics(setup: Setup) -> None:
    """Joining does not start another search for matching topics."""
    one, two = (Consumer(setup, name, topics=None, regex="or.*") for name in ("one", "two"))
    await settle(one)
    setup.topics.topics["oranges"] = (b"r" * 16, 2)
    setup.topics.changes += 1
    setup.coordinator.on_topics_changed({"oranges"}, are_new=True)
    await settle(two, one)
    assert one.of("oranges") | two.of("oranges") == set(), "the last search is recent"


@in_virtual_time(consumer=AT_ONCE)
async def test_names_and_expressions_add_up(setup: Setup) -> None:
    one = Consumer(setup, "one", topics=["clicks"], regex="ord.*")
    two = Consumer(setup, "two", topics=["clicks"])
    await settle(one, two)
    assert one.of("orders") == set(range(8))
    assert two.of("clicks") == {0, 1}
    await one.leave()
    assert group_of(setup).regexes == {}


@in_virtual_time()
async def test_the_error_of_a_long_expression_can_be_encoded(setup: Setup) -> None:
    response = await Consumer(setup, "one", topics=None, regex="a[" * 8 * 1024).beat()
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    told = decode(ConsumerGroupHeartbeatResponse, encode(response, 1), 1)
    assert (told.error_message or "").startswith("SubscribedTopicRegex `a[a[")


def test_an_invalid_expression_is_refused_with_its_error() -> None:
    check_regex("orders.*|clicks")
    with pytest.raises(KafkaError, match=r"`orders\[` is not .*: missing \]") as refused:
        check_regex("orders[")
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_an_expression_matches_whole_names() -> None:
    assert matching("o.*s", ["orders", "orders-old", "torders"]) == {"orders"}
    assert matching("orders[", ["orders["]) == frozenset()
