from __future__ import annotations

import asyncio

from consumer_members import Consumer, describe, group_of, settle
from group_setup import Setup, in_virtual_time
from lakelog.coordinator.group.config import ConsumerConfig

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
