"""The pulse of a cluster beats on its partitions, and shows that a majority was obliged."""

from __future__ import annotations

import pytest

from simulator.cluster.plan import ClusterPlan
from simulator.cluster.world import ClusterWorld
from simulator.execution import run_world

TWO_DOWN = ClusterPlan(8.0, frozenset({"plain"}), frozenset({"two down"}))


@pytest.mark.long
def test_it_beats_while_brokers_die() -> None:
    outcome = run_world(ClusterWorld(2, TWO_DOWN))
    assert outcome.violations == ()
    assert outcome.counts["pulses"] > 20
    assert outcome.counts["moments of an obliged majority"] > 20
