"""A cluster survives a leader that leads again, two elections in a row, and a late answer."""

from __future__ import annotations

import pytest

from simulator.cluster.plan import ClusterPlan
from simulator.cluster.world import ClusterWorld
from simulator.execution import run_world


@pytest.mark.parametrize(
    "schedule",
    [
        "earlier leader epoch",
        pytest.param("two elections", marks=pytest.mark.long),
        pytest.param("late answer", marks=pytest.mark.long),
    ],
)
def test_a_cluster_survives(schedule: str) -> None:
    plan = ClusterPlan(4.0, frozenset({"idempotent"}), frozenset({schedule}))
    world = ClusterWorld(1, plan)
    outcome = run_world(world)
    assert outcome.violations == ()
    assert outcome.faults[schedule] >= 1
    topics = (world.image.topic(name) for name in ("orders", "pulse"))
    states = [state for topic in topics if topic for state in topic.partitions.values()]
    assert max(state.leader_epoch for state in states) >= 2
