"""Brokers join a cluster and leave it, and it survives that."""

from __future__ import annotations

from simulator.cluster.plan import BROKERS_MAX, ClusterPlan
from simulator.cluster.world import ClusterWorld
from simulator.execution import run_world


def test_a_new_broker_gets_partitions_and_another_one_is_unregistered() -> None:
    faults = frozenset({"kill", "new broker", "removed broker"})
    world = ClusterWorld(2, ClusterPlan(12.0, frozenset({"growth"}), faults, store="file"))
    outcome = run_world(world)
    assert outcome.violations == ()
    assert outcome.counts["partitions on new brokers"] >= 1
    assert outcome.counts["removed brokers unregistered"] >= 1
    members = {host.node_id for host in world.hosts}
    assert set(world.image.brokers) == members
    assert members | world.brokers.removed == set(range(1, world.node_ids_used + 1))
    assert 3 < world.node_ids_used <= BROKERS_MAX
    for topic in ("pulse", "growing"):
        found = world.image.topic(topic)
        assert found is not None
        assert any({4, 5}.intersection(each.replicas) for each in found.partitions.values())
