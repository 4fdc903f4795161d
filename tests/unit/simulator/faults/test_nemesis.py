"""The nemesis: its choice of faults, and the disturbances that excuse late responses."""

from __future__ import annotations

import asyncio

import pytest

from simulator import Plan, World
from simulator.plan import DEATHS


def inject(plan: Plan, seed: int = 1) -> World:
    """Run the nemesis alone, on a broker without clients."""
    world = World(seed, plan)
    loop = world.simulator.loop

    async def main() -> None:
        await world.brokers.hosts[0].start()
        await world.nemesis.run()
        world.brokers.hosts[0].kill()

    loop.run_until_complete(asyncio.wait_for(main(), 300))
    loop.close()
    return world


@pytest.mark.parametrize("death", DEATHS)
def test_a_broker_dies_even_if_the_time_of_faults_is_short(death: str) -> None:
    faults = frozenset({death, "reset", "slow network"})
    world = inject(Plan(0.1, frozenset({"plain"}), faults))
    assert world.simulator.faults[death] == 1
    assert world.brokers.starts == 2


def test_only_faults_of_the_plan_occur() -> None:
    world = inject(Plan(60.0, frozenset({"plain"}), frozenset({"reset", "clock"})))
    assert set(world.simulator.faults) == {"reset", "clock"}
    assert world.brokers.starts == 1


def test_a_leap_of_a_clock_disturbs_nothing() -> None:
    """A broker must not respond late for it."""
    world = inject(Plan(30.0, frozenset({"plain"}), frozenset({"clock"})))
    assert world.conditions.leapt_at > 0
    assert not world.conditions.was_disturbed(since=world.conditions.leapt_at)
    world = inject(Plan(30.0, frozenset({"plain"}), frozenset({"slow network"})))
    assert world.conditions.was_disturbed(since=20.0)


def test_equal_seeds_inject_equal_faults() -> None:
    plan = Plan(40.0, frozenset({"plain"}), frozenset({"kill", "disk error", "flipped bit"}))
    first, again, other = (inject(plan, seed) for seed in (3, 3, 4))
    assert first.simulator.hash == again.simulator.hash != other.simulator.hash
