"""The simulation finds each planted bug within a few seeds, which are sound without the bug.

Each place that checks a law is reached by some planted bug.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cache

import pytest
from _pytest.mark import ParameterSet

from simulation.law_places import Place, all_places, note_places
from simulation.planted_bugs import BUGS
from simulator import World, run_world
from simulator.checkers.laws import Law

OF_CLUSTERS = {
    Law.ONE_LEADER,
    Law.WATERMARK_KEPT,
    Law.LEADER_COMPLETE,
    Law.IN_SYNC,
    Law.EPOCHS_IN_ORDER,
    Law.COPIED,
    Law.SAME_PREFIX,
    Law.CURRENT_MEMBERS,
    Law.ONE_COORDINATOR,
    Law.MARKED,
    Law.DECIDED,
    Law.SAME_IMAGE,
    Law.ONE_TERM,
    Law.AVAILABLE,
    Law.SHOWN,
    Law.HEALS,
}
"""Laws that a broker alone cannot break: `test_planted_cluster_bugs.py`, and unit tests."""
SOUND_SEEDS = 2
"""Worlds to check without the bug, at least, in `make prove`; otherwise those up to the catch."""


@dataclass(frozen=True)
class Catch:
    """`seed` is the first whose world has broken the bug's law; 0 if none has."""

    seed: int
    violation: str
    broken: frozenset[Law]
    """Laws broken by all worlds up to that seed."""
    checks: frozenset[Place]
    """The places that reported it."""


@cache
def caught(number: int) -> Catch:
    """Of the bug of this number."""
    bug = BUGS[number]
    broken: frozenset[Law] = frozenset()
    with pytest.MonkeyPatch.context() as monkeypatch:
        checks = note_places(monkeypatch)
        bug.patch(monkeypatch)
        for seed in range(bug.first, bug.first + bug.seeds):
            outcome = run_world(World(seed, bug.plan()))
            broken |= outcome.broken
            reported = [text for text in outcome.violations if bug.report in text]
            if bug.law in outcome.broken and reported:
                return Catch(seed, reported[0], broken, frozenset(checks))
    return Catch(0, "", broken, frozenset(checks))


@cache
def sound(plan: str, seed: int) -> tuple[str, ...]:
    """The violations of such a world without a bug; `plan` is that of some bug."""
    return run_world(World(seed, PLANS[plan].plan())).violations


def _each_bug() -> list[ParameterSet]:
    """Return all bugs; `make test` plants the first one of each law."""
    seen: set[Law] = set()
    bugs = []
    for number, bug in enumerate(BUGS):
        marks = [pytest.mark.prove] if bug.law in seen else []
        seen.add(bug.law)
        bugs.append(pytest.param(number, id=bug.name, marks=marks))
    return bugs


@pytest.mark.parametrize("number", _each_bug())
def test_is_caught(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    bug, catch = BUGS[number], caught(number)
    broken = sorted(law.name for law in catch.broken)
    assert catch.seed, f"{bug.law} holds in {bug.seeds} worlds with this bug; broken: {broken}"
    with capsys.disabled():
        print(f"\n{bug.name}: {bug.law.name} is broken by seed {catch.seed}: {catch.violation}")


@pytest.mark.prove
def test_each_law_is_broken_by_some_bug(capsys: pytest.CaptureFixture[str]) -> None:
    """The printed table comes from the findings of the worlds."""
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
    assert [law.value for law in Law if not breakers[law] and law not in OF_CLUSTERS] == []


@pytest.mark.prove
def test_each_place_of_a_law_is_reached_by_some_bug() -> None:
    """A law that is checked in several places could be unchecked in one of them."""
    reached = {check for number in range(len(BUGS)) for check in caught(number).checks}
    assert all_places() - reached == set()


PLANS = {repr(bug.plan()): bug for bug in BUGS}


@pytest.mark.parametrize("number", _each_bug())
def test_the_same_worlds_without_the_bug_are_sound(
    number: int, pytestconfig: pytest.Config
) -> None:
    """Or the alarm would mean nothing."""
    first = BUGS[number].first
    seeds = SOUND_SEEDS if pytestconfig.getoption("--prove") else 1
    for seed in range(first, max(first + seeds, caught(number).seed + 1)):
        assert sound(repr(BUGS[number].plan()), seed) == (), seed
