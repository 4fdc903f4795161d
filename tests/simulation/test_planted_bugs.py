"""The suite is only worth what it finds: each planted bug is caught within a few seeds."""

from __future__ import annotations

import pytest

from lakelog.testing.simulation import World
from simulation.planted_bugs import BUGS, Bug


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_is_caught(
    bug: Bug, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bug.patch(monkeypatch)
    for seed in range(1, bug.seeds + 1):
        outcome = World(seed, bug.plan()).run()
        if outcome.violations:
            with capsys.disabled():
                print(f"\n{bug.name}: caught by seed {seed}: {outcome.violations[0]}")
            return
    pytest.fail(f"{bug.name} is not caught by {bug.seeds} seeds")


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_the_same_world_without_the_bug_is_sound(bug: Bug) -> None:
    """Or the alarm would mean nothing."""
    assert World(1, bug.plan()).run().violations == ()
