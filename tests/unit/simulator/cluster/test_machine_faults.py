"""Faults of one machine happen, and its cluster survives them."""

from __future__ import annotations

import pytest

from simulator.cluster.plan import ClusterPlan
from simulator.cluster.world import ClusterWorld
from simulator.execution import run_world


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param("slow recovery", marks=pytest.mark.long),
        pytest.param("flipped bit", marks=pytest.mark.long),
        pytest.param("disk full", marks=pytest.mark.long),
        "disk error",
    ],
)
def test_a_cluster_survives(fault: str) -> None:
    plan = ClusterPlan(3.0, frozenset({"plain"}), frozenset({"kill", fault}))
    outcome = run_world(ClusterWorld(1, plan))
    assert outcome.violations == ()
    assert outcome.faults[fault] >= 1
