"""Faults of a cluster happen, and the cluster survives them."""

from __future__ import annotations

import pytest

from simulator.cluster.plan import ClusterPlan
from simulator.cluster.world import ClusterWorld
from simulator.execution import run_world


@pytest.mark.parametrize(
    ("death", "other"),
    [
        pytest.param("controller", "pause", marks=pytest.mark.long),
        pytest.param("wipe", "cut brokers", marks=pytest.mark.long),
        ("kill", "late requests"),
    ],
)
def test_faults_are_injected_and_survived(death: str, other: str) -> None:
    plan = ClusterPlan(3.0, frozenset({"plain"}), frozenset({death, other}))
    outcome = run_world(ClusterWorld(1, plan))
    assert outcome.violations == ()
    assert outcome.faults[death] >= 1
    assert outcome.faults[other] >= 1
