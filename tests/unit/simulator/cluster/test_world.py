"""A few seeds of a whole cluster; `make sim` runs as many as there is time for."""

from __future__ import annotations

from simulator.cluster.plan import ClusterPlan
from simulator.cluster.world import ClusterWorld
from simulator.execution import run_world


def test_a_cluster_keeps_its_promises_while_brokers_are_killed() -> None:
    plan = ClusterPlan(4.0, frozenset({"idempotent"}), frozenset({"kill"}))
    world = ClusterWorld(3, plan)
    outcome = run_world(world)
    assert outcome.violations == ()
    assert outcome.counts["acked"] > 10
    assert outcome.faults["kill"] >= 1
    for machine in world.machines:
        assert "orders-0" in {path.parent.name for path in machine.disk.files()}


def test_a_seed_is_repeatable() -> None:
    plan = ClusterPlan(1.0, frozenset({"plain"}), frozenset({"kill"}))
    first, second = (run_world(ClusterWorld(4, plan)) for _ in range(2))
    assert first == second


def test_the_plan_decides_how_many_brokers_begin() -> None:
    world = ClusterWorld(1, ClusterPlan(brokers=4))
    assert [host.node_id for host in world.hosts] == [1, 2, 3, 4]
    assert world.add_broker().name == "broker-5"
    world.simulator.loop.close()
