"""An administrator changes preferred leaders and settings while a broker dies."""

from __future__ import annotations

import pytest

from simulator.cluster.plan import ClusterPlan
from simulator.cluster.world import ClusterWorld
from simulator.execution import run_world


def test_a_cluster_survives_them() -> None:
    plan = ClusterPlan(6.0, frozenset({"reconfiguration"}), frozenset({"kill"}))
    world = ClusterWorld(1, plan)
    assert run_world(world).violations == ()
    moving = world.image.topic("moving")
    assert moving is not None
    orders = {state.replicas for state in moving.partitions.values()}
    assert all(sorted(order) == [1, 2, 3] for order in orders)
    assert max(state.leader_epoch for state in moving.partitions.values()) > 0


@pytest.mark.long
def test_brokers_are_unregistered_and_come_back() -> None:
    faults = frozenset({"kill", "two down", "pause", "cut store"})
    world = ClusterWorld(6, ClusterPlan(20.0, frozenset({"reconfiguration"}), faults))
    outcome = run_world(world)
    assert outcome.violations == ()
    assert outcome.counts["brokers unregistered"] > 0
    assert sorted(world.image.brokers) == [1, 2, 3]


@pytest.mark.long
def test_no_record_expires_when_a_clock_leaps() -> None:
    plan = ClusterPlan(10.0, frozenset({"reconfiguration"}), frozenset({"clock"}), store="file")
    outcome = run_world(ClusterWorld(2, plan))
    assert outcome.violations == ()
    assert outcome.faults["clock"] > 0
