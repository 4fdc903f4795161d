"""Each fault of a cluster happens, and the cluster survives it."""

from __future__ import annotations

import pytest

from lakelog.testing.simulation.cluster.execution import run_cluster
from lakelog.testing.simulation.cluster.plan import FAULTS, ClusterPlan
from lakelog.testing.simulation.cluster.world import ClusterWorld


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_injected(fault: str) -> None:
    plan = ClusterPlan(5.0, frozenset({"plain"}), frozenset({fault}))
    outcome = run_cluster(ClusterWorld(1, plan))
    assert outcome.violations == ()
    assert outcome.faults[fault] >= 1
