"""The limit of the total size of the subscriptions of a group's members."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from consumer_members import Consumer
from coordinator_members import form, heartbeat, join, new_id
from group_setup import Setup, in_virtual_time
from lakelog.base.errors import ErrorCode
from lakelog.protocol.consumer_protocol import ConsumerProtocolSubscription, encode_versioned

FULL = ErrorCode.GROUP_MAX_SIZE_REACHED
OF_EACH = 32
"""Overhead of each name and each assignor."""


def saying(size: int) -> tuple[tuple[str, bytes], ...]:
    return (("range", b"x" * (size - len("range") - OF_EACH)),)


def subscribing(*topics: str) -> tuple[tuple[str, bytes], ...]:
    subscription = ConsumerProtocolSubscription(topics=list(topics), owned_partitions=[])
    return (("range", encode_versioned(subscription, 0)),)


@in_virtual_time(subscriptions_bytes_max=1000, initial_rebalance_delay_ms=0)
async def test_classic_members(setup: Setup) -> None:
    (first,) = await form(setup, 1, protocols=saying(600))
    assert (await join(setup, protocols=saying(401))).error_code == FULL
    assert (await join(setup, protocols=saying(401), version=3)).error_code == FULL
    assert (await join(setup, protocols=saying(401), instance_id="i")).error_code == FULL
    assert (await join(setup, protocols=saying(5000), group="other")).error_code == FULL
    assert await new_id(setup, protocols=saying(400))
    assert await heartbeat(setup, first) == 0

    refused = await join(setup, first.member_id, protocols=saying(1001))
    assert refused.error_code == FULL
    assert await heartbeat(setup, first) == 0
    assert (await join(setup, first.member_id, protocols=saying(1000))).error_code == 0
    assert (await join(setup, protocols=saying(100))).error_code == FULL
    assert (await join(setup, first.member_id, protocols=saying(500))).error_code == 0
    assert await new_id(setup, protocols=saying(500))


@in_virtual_time(subscriptions_bytes_max=1000, initial_rebalance_delay_ms=0)
async def test_a_classic_member_whose_subscription_does_not_grow_may_rejoin(
    setup: Setup,
) -> None:
    (first,) = await form(setup, 1, protocols=saying(900))
    setup.config = replace(setup.config, subscriptions_bytes_max=100)
    await setup.restart()
    again = await join(setup, first.member_id, protocols=saying(900))
    assert again.error_code == 0
    assert (await join(setup, protocols=saying(10))).error_code == FULL


@in_virtual_time(subscriptions_bytes_max=1000)
async def test_members_of_the_consumer_protocol(setup: Setup) -> None:
    names = [f"{number:0{100 - OF_EACH}}" for number in range(6)]
    first = Consumer(setup, "a", topics=names)
    assert (await first.beat()).error_code == 0
    second = Consumer(setup, "b", topics=names[:5])
    refused = await second.beat()
    assert refused.error_code == FULL
    assert "lakelog.group.subscriptions.max.bytes (1000)" in (refused.error_message or "")
    second.topics = names[:4]
    assert (await second.beat()).error_code == 0
    assert (await first.beat()).error_code == 0

    first.topics = [*names, "x"]
    assert (await first.beat()).error_code == FULL
    first.topics = names[:5]
    assert (await first.beat()).error_code == 0
    third = Consumer(setup, "c", topics=[], regex="x" * 101)
    assert (await third.beat()).error_code == FULL
    await second.beat(member_epoch=-1)
    assert (await third.beat()).error_code == 0
    await setup.restart()
    assert (await Consumer(setup, "d", topics=names[:4]).beat()).error_code == FULL


@in_virtual_time(subscriptions_bytes_max=1000)
async def test_classic_members_of_a_consumer_group(setup: Setup) -> None:
    first = Consumer(setup, "a", topics=["x" * 700])
    assert (await first.beat()).error_code == 0
    large = subscribing("orders", "y" * 240)
    member_id = await new_id(setup, protocols=large)
    assert (await join(setup, member_id, protocols=large)).error_code == FULL
    small = subscribing("orders")
    member_id = await new_id(setup, protocols=small)
    assert (await join(setup, member_id, protocols=small)).error_code == 0


@in_virtual_time(subscriptions_bytes_max=10_000, initial_rebalance_delay_ms=0)
async def test_many_empty_names_have_a_size(setup: Setup) -> None:
    for version in (3, 9):
        refused = await join(setup, protocols=(("", b""),) * 10_000, version=version)
        assert refused.error_code == FULL
    many = Consumer(setup, "a", topics=[chr(0x10000 + number) for number in range(5000)])
    assert (await many.beat()).error_code == FULL


@in_virtual_time(subscriptions_bytes_max=1000)
async def test_a_rebalance_does_not_wait_for_a_rejected_pending_member(setup: Setup) -> None:
    (first,) = await form(setup, 1, protocols=saying(600))
    member_id = await new_id(setup, protocols=saying(100), session_timeout_ms=1_800_000)
    rejoining = join(setup, first.member_id, protocols=saying(600), rebalance_timeout_ms=1_800_000)
    await asyncio.sleep(1)
    assert not rejoining.done(), "the other one may come"
    assert (await join(setup, member_id, protocols=saying(500))).error_code == FULL
    assert (await asyncio.wait_for(rejoining, 1)).error_code == 0
