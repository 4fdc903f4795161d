"""The suite is only worth what it finds: each planted bug is caught within a few seeds, and there
is no law of the worlds that no planted bug breaks."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cache

import pytest

from lakelog.testing.simulation import World
from lakelog.testing.simulation.laws import Law
from simulation.planted_bugs import BUGS, Bug


@dataclass(frozen=True)
class Catch:
    """`seed` is the first whose world has broken the bug's law; 0 if none has."""

    seed: int
    violation: str
    broken: frozenset[Law]
    """By all worlds up to that."""


@cache
def caught(number: int) -> Catch:
    """Of the bug of this number."""
    bug = BUGS[number]
    broken: frozenset[Law] = frozenset()
    with pytest.MonkeyPatch.context() as monkeypatch:
        bug.patch(monkeypatch)
        for seed in range(1, bug.seeds + 1):
            outcome = World(seed, bug.plan()).run()
            broken |= outcome.broken
            if bug.law in outcome.broken:
                return Catch(seed, outcome.violations[0], broken)
    return Catch(0, "", broken)


def named(bugs: list[Bug]) -> list[str]:
    return [bug.name for bug in bugs]


@pytest.mark.parametrize("number", range(len(BUGS)), ids=named(BUGS))
def test_is_caught(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    bug, catch = BUGS[number], caught(number)
    told = sorted(law.name for law in catch.broken)
    assert catch.seed, f"{bug.law} holds in {bug.seeds} worlds with this bug; broken: {told}"
    with capsys.disabled():
        print(f"\n{bug.name}: {bug.law.name} is broken by seed {catch.seed}: {catch.violation}")


def test_each_law_is_broken_by_some_bug(capsys: pytest.CaptureFixture[str]) -> None:
    """The table is computed from what the worlds have found."""
    breakers: dict[Law, list[str]] = defaultdict(list)
    for number, bug in enumerate(BUGS):
        catch = caught(number)
        for law in catch.broken:
            seeds = f" ({catch.seed})" if law is bug.law else ""
            breakers[law].append(f"{bug.name}{seeds}")
    with capsys.disabled():
        print("\nlaw: planted bugs that break it (in how many seeds)")
        for law in Law:
            print(f"  {law.name}: {', '.join(breakers[law]) or 'none'}")
    assert [law.value for law in Law if not breakers[law]] == []


WORLDS = {repr(bug.plan()): bug for bug in BUGS}


@pytest.mark.parametrize("bug", WORLDS.values(), ids=lambda bug: bug.name)
def test_the_same_world_without_the_bug_is_sound(bug: Bug) -> None:
    """Or the alarm would mean nothing."""
    assert World(1, bug.plan()).run().violations == ()
