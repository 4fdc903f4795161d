"""Faults of one machine happen, and its cluster survives them."""

from __future__ import annotations

import pytest

from simulator.cluster.execution import run_cluster
from simulator.cluster.plan import ClusterPlan
from simulator.cluster.world import ClusterWorld


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
    outcome = run_cluster(ClusterWorld(1, plan))
    assert outcome.violations == ()
    assert outcome.faults[fault] >= 1
