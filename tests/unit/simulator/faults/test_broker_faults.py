"""The faults that all worlds share: what each does to a broker, a client or the network."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from simulator import Plan, World
from simulator.brokers.host import BrokerHost
from simulator.faults.broker_faults import BrokerFaults


def inside(scenario: Callable[[World, BrokerFaults], Coroutine[Any, Any, None]]) -> World:
    """Run a scenario with one broker, which comes back at once, and without clients."""
    world = World(1, Plan(1.0, frozenset({"plain"}), frozenset()))
    loop = world.simulator.loop

    async def come_back(host: BrokerHost) -> None:
        await host.bring_back()

    faults = BrokerFaults(
        world.simulator,
        world.network,
        world.conditions,
        world.brokers.hosts,
        world.pool,
        random.Random(1),
        come_back,
    )

    async def main() -> None:
        await world.brokers.hosts[0].start()
        await scenario(world, faults)
        world.brokers.hosts[0].kill()

    loop.run_until_complete(asyncio.wait_for(main(), 300))
    loop.close()
    return world


@pytest.mark.parametrize("name", ["kill", "kill at a write", "stop"])
def test_a_death_ends_the_process_and_another_one_follows(name: str) -> None:
    async def scenario(world: World, faults: BrokerFaults) -> None:
        before = world.brokers.hosts[0].process
        await faults.injectors[name]()
        assert world.brokers.hosts[0].process not in (None, before)

    assert inside(scenario).brokers.starts == 2


def test_a_leap_of_a_clock_is_noted() -> None:
    async def scenario(world: World, faults: BrokerFaults) -> None:
        (host,) = world.brokers.hosts
        before = host.clock.wall_ms()
        await faults.injectors["clock"]()
        assert abs(host.clock.wall_ms() - before) >= 50

    assert inside(scenario).conditions.leapt_at >= 0


def test_the_network_is_slow_for_some_time() -> None:
    async def scenario(world: World, faults: BrokerFaults) -> None:
        usual = world.network.delay_s
        slow = asyncio.ensure_future(faults.injectors["slow network"]())
        await asyncio.sleep(0.5)
        assert world.network.delay_s > usual
        await slow
        assert world.network.delay_s == usual

    inside(scenario)


def test_a_machine_without_power_is_down() -> None:
    async def scenario(world: World, faults: BrokerFaults) -> None:
        (host,) = world.brokers.hosts
        faults.cut_power(host)
        assert not host.is_running
        assert host.name in world.network.down
        world.network.down.clear()
        await host.bring_back()

    inside(scenario)
