"""The simulation of a cluster finds planted bugs of replication, control and coordination."""

from __future__ import annotations

import pytest

from simulation.planted_cluster_bugs import BUGS, ClusterBug
from simulator.cluster.execution import run_cluster
from simulator.cluster.world import ClusterWorld


def violations(bug: ClusterBug, seed: int) -> tuple[str, ...]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        bug.patch(monkeypatch)
        found = run_cluster(ClusterWorld(seed, bug.plan())).violations
    # A patch that does not fit the code any more would break every world.
    assert not any("failed to start" in text for text in found), found
    return found


@pytest.mark.parametrize("name", BUGS)
def test_is_caught(name: str) -> None:
    """By some of the seeds; `make planted` counts them."""
    bug = BUGS[name]
    assert any(violations(bug, seed) for seed in range(bug.first, bug.first + bug.seeds))
