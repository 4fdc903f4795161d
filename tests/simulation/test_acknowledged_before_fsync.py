"""An acknowledgement before its fsync is no rare find: worlds made for it show it often.

`make test` counts the worlds that show one of the bugs, `make prove` the worlds of each bug.
"""

from __future__ import annotations

import pytest

from simulation import planted_in_durability
from simulation.planted_bugs import BUGS, Bug
from simulator import World, run_world

SEEDS = 20
ENOUGH = 7
"""Of so many worlds that have to show each bug; most show it in nearly all."""

PREMATURE = [bug for bug in BUGS if bug.patch.__module__ == planted_in_durability.__name__]


@pytest.mark.parametrize(
    "bug",
    [
        pytest.param(bug, id=bug.name, marks=[] if bug is PREMATURE[0] else [pytest.mark.prove])
        for bug in PREMATURE
    ],
)
def test_many_worlds_show_it(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.patch(monkeypatch)
    showing = (
        seed for seed in range(1, SEEDS + 1) if run_world(World(seed, bug.plan())).violations
    )
    assert sum(1 for _, _ in zip(range(ENOUGH), showing, strict=False)) == ENOUGH


def test_the_worlds_promise_durability() -> None:
    """All but one: the log of metadata is always synced."""
    durable = [bug.plan().is_durable for bug in PREMATURE]
    assert durable.count(False) == 1
    assert len(durable) > 1
