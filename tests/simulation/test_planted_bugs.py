"""The suite is only worth what it finds: each planted bug is caught within a few seeds that are
sound without it, and no law is looked after where no planted bug breaks it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cache

import pytest

from lakelog.testing.simulation import World, run
from lakelog.testing.simulation.checkers.laws import Law
from simulation.law_places import Place, all_places, note_places
from simulation.planted_bugs import BUGS, Bug

SOUND_SEEDS = 2
"""At least so many without the bug."""


@dataclass(frozen=True)
class Catch:
    """`seed` is the first whose world has broken the bug's law; 0 if none has."""

    seed: int
    violation: str
    broken: frozenset[Law]
    """By all worlds up to that."""
    places: frozenset[Place]
    """Where that was told."""


@cache
def caught(number: int) -> Catch:
    """Of the bug of this number."""
    bug = BUGS[number]
    broken: frozenset[Law] = frozenset()
    with pytest.MonkeyPatch.context() as monkeypatch:
        places = note_places(monkeypatch)
        bug.patch(monkeypatch)
        for seed in range(1, bug.seeds + 1):
            outcome = run(World(seed, bug.plan()))
            broken |= outcome.broken
            told = [text for text in outcome.violations if bug.told in text]
            if bug.law in outcome.broken and told:
                return Catch(seed, told[0], broken, frozenset(places))
    return Catch(0, "", broken, frozenset(places))


@cache
def sound(plan: str, seed: int) -> tuple[str, ...]:
    """The violations of such a world without a bug; `plan` is that of some bug."""
    return run(World(seed, PLANS[plan].plan())).violations


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


def test_each_place_of_a_law_is_reached_by_some_bug() -> None:
    """A law that is looked after in several places could fail to be in one of them."""
    reached = {place for number in range(len(BUGS)) for place in caught(number).places}
    assert all_places() - reached == set()


PLANS = {repr(bug.plan()): bug for bug in BUGS}


@pytest.mark.parametrize("number", range(len(BUGS)), ids=named(BUGS))
def test_the_same_worlds_without_the_bug_are_sound(number: int) -> None:
    """Or the alarm would mean nothing."""
    for seed in range(1, max(SOUND_SEEDS, caught(number).seed) + 1):
        assert sound(repr(BUGS[number].plan()), seed) == (), seed
