"""Brokers of a world, and the names that belong to each."""

from __future__ import annotations

import pytest

from simulator import World
from simulator.plan import EXPIRATION, Plan


@pytest.mark.parametrize(
    ("name", "broker"),
    [
        ("orders", "broker-1"),
        ("once0'2", "broker-1"),
        ("orders-b2", "broker-2"),
        ("once0-b2'2", "broker-2"),
        ("team-b3", "broker-3"),
    ],
)
def test_the_suffix_of_a_name_decides(name: str, broker: str) -> None:
    world = World(1, brokers=3)
    assert world.brokers.home_of(name).name == broker
    world.simulator.loop.close()


def test_a_leap_of_its_clock_lets_a_broker_forget_producers() -> None:
    plan = Plan()
    plan.settings[EXPIRATION] = "5000"
    world = World(1, plan, brokers=2)
    world.brokers.hosts[1].clock.leap(6000)
    assert not world.records.forgets(("orders", 0), 0.0)
    assert world.records.forgets(("orders-b2", 0), 0.0)
    world.simulator.loop.close()
