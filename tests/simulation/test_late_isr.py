"""A proposed ISR that arrives after its repetitions adds no member that lacks committed records."""

from __future__ import annotations

import pytest

from repetitions import first_of
from simulator.cluster.plan import ClusterPlan
from simulator.cluster.world import ClusterWorld
from simulator.execution import run_world


@pytest.mark.parametrize("seed", first_of([1, 2]))
@pytest.mark.parametrize("store", ["zookeeper", "file"])
def test_a_late_request_adds_no_member_that_lacks_committed_records(seed: int, store: str) -> None:
    plan = ClusterPlan(20.0, frozenset({"idempotent"}), frozenset({"late ISR"}), store=store)
    outcome = run_world(ClusterWorld(seed, plan))
    assert outcome.violations == ()
