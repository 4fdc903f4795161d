"""The brokers of a cluster, as its clients see them."""

from __future__ import annotations

import asyncio

from simulator.cluster.plan import ClusterPlan
from simulator.cluster.world import ClusterWorld
from waiting import until


def test_the_cluster_is_the_home_of_every_name() -> None:
    world = ClusterWorld(1, ClusterPlan())
    assert world.brokers.home_of("orders") is world.brokers.home_of("team'2")
    assert world.brokers.suffix == ""
    world.simulator.loop.close()


def test_the_clock_that_is_most_wrong_decides() -> None:
    world = ClusterWorld(1, ClusterPlan())
    world.hosts[1].clock.leap(-9000)
    assert world.brokers.clock.spread_ms(0.0) == 9000
    world.simulator.loop.close()


def test_a_broker_that_is_down_is_not_unfenced() -> None:
    world = ClusterWorld(1, ClusterPlan())
    loop, brokers = world.simulator.loop, world.brokers

    async def main() -> None:
        await asyncio.gather(*(host.start() for host in world.hosts))
        await until(lambda: brokers.are_unfenced)
        world.hosts[2].kill()

    loop.run_until_complete(main())
    assert not brokers.are_unfenced
    for host in world.hosts:
        host.kill()
    loop.close()
