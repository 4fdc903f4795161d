"""The simulation of a cluster finds planted bugs of replication, control and coordination.

`make test` plants one bug for each law, and `make prove` all.
"""

from __future__ import annotations

import pytest

from simulation.planted_cluster_bugs import BUGS, ClusterBug
from simulation.test_planted_bugs import OF_CLUSTERS
from simulator.checkers.laws import Law
from simulator.cluster.world import ClusterWorld
from simulator.execution import WorldOutcome, run_world

BY_LAW = {
    Law.ONE_LEADER: ("a leader in the epoch of its predecessor", 1),
    Law.WATERMARK_KEPT: ("a watermark that begins again", 1),
    Law.LEADER_COMPLETE: ("acknowledged on the repeat path", 1),
    Law.IN_SYNC: ("truncated to the high watermark", 1),
    Law.COPIED: ("an answer of another leader epoch", 1),
    Law.SAME_PREFIX: ("a position reported before the flush", 1),
    Law.CURRENT_MEMBERS: ("a fenced member of the ISR", 1),
    Law.ONE_COORDINATOR: ("a leader in the epoch of its predecessor", 1),
    Law.MARKED: ("a shard loaded to the high watermark only", 1),
    Law.DECIDED: ("a late marker ends the next transaction", 1),
    Law.SAME_IMAGE: ("records of a dead controller kept", 1),
    Law.ONE_TERM: ("an append of a deposed controller", 10),
    Law.AVAILABLE: ("a watermark over all replicas", 1),
    Law.SHOWN: ("a fenced broker that is ready", 1),
    Law.HEALS: ("an ISR that never grows", 1),
}
"""A bug that breaks the law within a few seconds, and the first seed to try."""

IN_UNIT_TESTS = {Law.EPOCHS_IN_ORDER}
"""No planted bug breaks it; `tests/unit/simulator/cluster/test_stored_batches.py` does."""


def outcome(bug: ClusterBug, seed: int) -> WorldOutcome:
    with pytest.MonkeyPatch.context() as monkeypatch:
        bug.patch(monkeypatch)
        found = run_world(ClusterWorld(seed, bug.plan()))
    # A patch that does not fit the code any more would break every world.
    assert not any("failed to start" in text for text in found.violations), found.violations
    return found


def violations(bug: ClusterBug, seed: int) -> tuple[str, ...]:
    return outcome(bug, seed).violations


@pytest.mark.parametrize("law", BY_LAW, ids=lambda law: law.name)
def test_breaks_its_law(law: Law) -> None:
    name, first = BY_LAW[law]
    bug = BUGS[name]
    assert any(law in outcome(bug, seed).broken for seed in range(first, first + bug.seeds))


def test_each_law_of_clusters_has_its_bug() -> None:
    assert BY_LAW.keys() | IN_UNIT_TESTS == OF_CLUSTERS


@pytest.mark.prove
@pytest.mark.parametrize("name", BUGS)
def test_is_caught(name: str) -> None:
    """By some of the seeds; `make planted` counts them."""
    bug = BUGS[name]
    assert any(violations(bug, seed) for seed in range(bug.first, bug.first + bug.seeds))
