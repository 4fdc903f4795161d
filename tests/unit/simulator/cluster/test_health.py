"""The command's own code asks over the simulated network."""

from __future__ import annotations

import pytest

from simulator.cluster.plan import ClusterPlan
from simulator.cluster.world import ClusterWorld
from simulator.execution import run_world

TWO_DOWN = ClusterPlan(8.0, frozenset({"plain"}), frozenset({"two down"}))


@pytest.mark.long
def test_the_command_is_asked_while_partitions_cannot_be_written() -> None:
    outcome = run_world(ClusterWorld(1, TWO_DOWN))
    assert outcome.violations == ()
    assert outcome.counts["healths of partitions that cannot be written"] > 0
