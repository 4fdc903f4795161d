"""Subscriptions by regular expression."""

from __future__ import annotations

import asyncio

import pytest

from consumer_members import Consumer, describe, group_of, settle
from group_setup import Setup, in_virtual_time
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.config import ConsumerConfig
from lakelog.coordinator.group.consumer.subscriptions import check_regex, matching
from lakelog.protocol.group_members import ConsumerGroupHeartbeatResponse
from lakelog.wire.codec import decode, encode

AT_ONCE = ConsumerConfig(assignment_interval_ms=0)


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
