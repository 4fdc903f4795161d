"""Worlds whose disk is full again and again: deletions with the help of the reserve persist."""

from __future__ import annotations

from collections import Counter

import pytest

from lakelog.storage.folder.space import SpaceReserve
from repetitions import first_of
from simulator import Plan, World, run_world

SEEDS = (range(1, 4), range(4, 7))
FULL = Plan(15.0, frozenset({"administration", "idempotent"}), frozenset({"disk full", "kill"}))


@pytest.mark.parametrize("seeds", first_of(SEEDS), ids=str)
def test_what_frees_space_uses_the_reserve(monkeypatch: pytest.MonkeyPatch, seeds: range) -> None:
    counts: Counter[str] = Counter()
    free, renew = SpaceReserve.free, SpaceReserve.renew

    def counted_free(reserve: SpaceReserve) -> bool:
        freed = free(reserve)
        counts["freed"] += freed
        return freed

    def counted_renew(reserve: SpaceReserve) -> None:
        was_spent = reserve.is_spent
        renew(reserve)
        counts["renewed"] += was_spent and not reserve.is_spent

    monkeypatch.setattr(SpaceReserve, "free", counted_free)
    monkeypatch.setattr(SpaceReserve, "renew", counted_renew)
    for seed in seeds:
        assert not run_world(World(seed, FULL)).violations
    assert counts["freed"] >= len(seeds)
    assert counts["renewed"] > 0
