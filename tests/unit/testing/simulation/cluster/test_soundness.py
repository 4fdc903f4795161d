"""The state of brokers is that of their machines and of the network between them."""

from __future__ import annotations

import asyncio
import errno

from lakelog.testing.simulation.cluster.ensemble import STORE
from lakelog.testing.simulation.cluster.plan import ClusterPlan
from lakelog.testing.simulation.cluster.soundness import soundness_of
from lakelog.testing.simulation.cluster.world import ClusterWorld

ALL = frozenset({1, 2, 3})


def started() -> ClusterWorld:
    world = ClusterWorld(1, ClusterPlan())
    loop = world.simulator.loop
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(asyncio.gather(*(host.start() for host in world.hosts)))
    finally:
        asyncio.set_event_loop(None)
    return world


def end(world: ClusterWorld) -> None:
    for host in world.hosts:
        host.kill()
    for task in asyncio.all_tasks(world.simulator.loop):
        task.cancel()
    world.simulator.loop.close()


def test_each_fault_takes_a_broker_out() -> None:
    world = started()
    first, network = world.hosts[0], world.network
    try:
        whole = soundness_of(world.hosts, network)
        assert (whole.able, whole.untouched, len(whole.pairs)) == (ALL, ALL, 3)
        first.pause()
        assert soundness_of(world.hosts, network).able == {2, 3}
        first.resume()
        network.cut(STORE, first.name)
        found = soundness_of(world.hosts, network)
        assert found.pairs == {(2, 3)}
        assert found.is_worse_than(whole)
        network.heal()
        assert soundness_of(world.hosts, network) == whole
        first.disk.fail("write", errno.EIO, times=1)
        assert soundness_of(world.hosts, network).able == {2, 3}
        first.disk.forget_faults()
        assert soundness_of(world.hosts, network).able == {2, 3}, "not at once"
        world.hosts[1].disk.capacity = 0
        assert soundness_of(world.hosts, network).able == {3}
        world.hosts[2].kill()
        assert soundness_of(world.hosts, network).able == frozenset()
    finally:
        end(world)


def test_a_cut_or_slow_way_between_brokers_leaves_no_pair() -> None:
    world = started()
    network = world.network
    try:
        network.cut("broker-1", "broker-2")
        assert soundness_of(world.hosts, network).pairs == frozenset()
        network.heal()
        network.slow_down()
        found = soundness_of(world.hosts, network)
        assert (found.able, found.pairs) == (ALL, frozenset())
    finally:
        end(world)
