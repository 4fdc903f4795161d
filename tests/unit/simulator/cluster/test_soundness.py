"""The state of brokers is that of their machines and of the network between them."""

from __future__ import annotations

import asyncio
import errno

from simulator.cluster.ensemble import STORE
from simulator.cluster.plan import ClusterPlan
from simulator.cluster.soundness import soundness_of
from simulator.cluster.world import ClusterWorld

CLIENT = "pulse"
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
        whole = soundness_of(world.hosts, network, CLIENT)
        assert (whole.able, whole.untouched, len(whole.pairs)) == (ALL, ALL, 3)
        first.pause()
        assert soundness_of(world.hosts, network, CLIENT).able == {2, 3}
        first.resume()
        network.cut(STORE, first.name)
        found = soundness_of(world.hosts, network, CLIENT)
        assert found.pairs == {(2, 3)}
        assert found.is_worse_than(whole)
        network.heal()
        assert soundness_of(world.hosts, network, CLIENT) == whole
        network.cut(CLIENT, first.name)
        assert soundness_of(world.hosts, network, CLIENT).able == {2, 3}
        network.heal()
        network.filter(first.name, "broker-2")
        assert soundness_of(world.hosts, network, CLIENT).pairs == {(1, 3), (2, 3)}
        network.heal()
        first.slow_threads(2.0)
        assert soundness_of(world.hosts, network, CLIENT).able == {2, 3}
        first.slow_threads()
        assert soundness_of(world.hosts, network, CLIENT) == whole
        first.disk.fail("write", errno.EIO, times=1)
        assert soundness_of(world.hosts, network, CLIENT).able == {2, 3}
        first.disk.forget_faults()
        assert soundness_of(world.hosts, network, CLIENT).able == {2, 3}, "not at once"
        world.hosts[1].disk.capacity = 0
        assert soundness_of(world.hosts, network, CLIENT).able == {3}
        world.hosts[2].kill()
        assert soundness_of(world.hosts, network, CLIENT).able == frozenset()
    finally:
        end(world)


def test_brokers_beside_a_cut_are_pairs() -> None:
    world = started()
    network = world.network
    try:
        network.cut("broker-1", "broker-2")
        found = soundness_of(world.hosts, network, CLIENT)
        assert found.able == ALL
        assert found.pairs == {(1, 3), (2, 3)}
        assert found.untouched == {3}, "either pair may commit without the others"
        network.cut("broker-3", "broker-1")
        found = soundness_of(world.hosts, network, CLIENT)
        assert found.pairs == {(2, 3)}
        assert found.untouched == {2, 3}
        world.hosts[1].kill()
        found = soundness_of(world.hosts, network, CLIENT)
        assert not found.pairs
        assert found.untouched == {1, 3}, "no other one commits"
    finally:
        end(world)


def test_a_slow_network_leaves_no_pair() -> None:
    world = started()
    try:
        world.network.slow_down()
        found = soundness_of(world.hosts, world.network, CLIENT)
        assert (found.able, found.pairs, found.untouched) == (ALL, frozenset(), frozenset())
    finally:
        end(world)


def test_half_of_the_brokers_is_no_pair() -> None:
    """A controller in the other half may keep its term."""
    world = started()
    try:
        loop = world.simulator.loop
        asyncio.set_event_loop(loop)
        loop.run_until_complete(world.add_broker().start())
        network = world.network
        assert len(soundness_of(world.hosts, network, CLIENT).pairs) == 6
        for one in ("broker-1", "broker-2"):
            for other in ("broker-3", "broker-4"):
                network.cut(one, other)
        assert not soundness_of(world.hosts, network, CLIENT).pairs
        network.heal()
        network.cut("broker-1", "broker-4")
        found = soundness_of(world.hosts, network, CLIENT)
        assert found.pairs == {(1, 2), (1, 3), (2, 3), (2, 4), (3, 4)}
    finally:
        asyncio.set_event_loop(None)
        end(world)
