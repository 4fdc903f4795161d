"""A refused request for an ISR leaves open whether an earlier one arrives later."""

from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.testing.simulation.cluster.execution import run_cluster
from lakelog.testing.simulation.cluster.plan import ClusterPlan
from lakelog.testing.simulation.cluster.world import ClusterWorld
from simulation.late_isr import LateIsr


@pytest.mark.parametrize("seed", [1, 2])
def test_a_late_request_adds_no_member_that_lacks_committed_records(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = LateIsr()
    schedule.plant(monkeypatch)
    plan = ClusterPlan(20.0, frozenset({"idempotent"}), frozenset({"cut store"}))
    assert run_cluster(ClusterWorld(seed, plan)).violations == ()
    assert schedule.codes == {
        1: ErrorCode.INVALID_UPDATE_VERSION,
        2: ErrorCode.INELIGIBLE_REPLICA,
    }
