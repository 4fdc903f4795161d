"""Each directed schedule brings about its situation, and the cluster survives it."""

from __future__ import annotations

import pytest

from simulator.cluster.plan import ClusterPlan
from simulator.cluster.world import ClusterWorld
from simulator.execution import WorldOutcome, run_world


def run(schedule: str, store: str = "zookeeper") -> WorldOutcome:
    plan = ClusterPlan(3.0, frozenset({"idempotent"}), frozenset({schedule}), store=store)
    outcome = run_world(ClusterWorld(1, plan))
    assert outcome.violations == ()
    assert outcome.faults[schedule] >= 1
    return outcome


@pytest.mark.parametrize(
    ("schedule", "store"),
    [
        ("two down", "file"),
        pytest.param("return into a cut", "zookeeper", marks=pytest.mark.long),
        pytest.param("missed snapshot", "file", marks=pytest.mark.long),
        pytest.param("two down", "zookeeper", marks=pytest.mark.long),
        pytest.param("return into a cut", "file", marks=pytest.mark.long),
        pytest.param("missed snapshot", "zookeeper", marks=pytest.mark.long),
    ],
)
def test_a_schedule_with_deaths_is_survived(schedule: str, store: str) -> None:
    assert run(schedule, store).counts["replicas in sync again"] > 0


@pytest.mark.long
@pytest.mark.parametrize("schedule", ["lagging follower", "deposed leader"])
def test_a_follower_that_lags_and_a_deposed_leader_join_the_isr_again(schedule: str) -> None:
    assert run(schedule).counts["replicas in sync again"] > 0
