"""A leader that reaches the store and no other broker is fenced before its session ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lakelog.server.controller import controller
from lakelog.server.coordinators import lease
from lost_broker import Lose, LostBroker
from repetitions import first_of
from simulator.cluster.nemesis import ClusterNemesis
from simulator.cluster.plan import SESSION_S, STORES

SEEDS = (1, 2, 3)


def cut(*, out: bool, into: bool) -> Lose:
    """Return a function that loses all bytes from a broker, to it, or both."""

    def lose(nemesis: ClusterNemesis, name: str, others: list[str]) -> Callable[[], None]:
        ways = [(name, each) for each in others if out] + [(each, name) for each in others if into]
        for way in ways:
            nemesis._network.cut(*way)
        return lambda: nemesis._network.mend(ways)

    return lose


BOTH = cut(out=True, into=True)
CUTS = {"both ways": BOTH, "out": cut(out=True, into=False), "into": cut(out=False, into=True)}


@pytest.mark.parametrize("lose", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("seed", first_of(SEEDS))
def test_others_lead_before_the_session_of_a_leader_without_peers_is_over(
    monkeypatch: pytest.MonkeyPatch, seed: int, store: str, lose: Lose
) -> None:
    seen = LostBroker(monkeypatch, lose).run(seed, store)
    assert seen.fenced_s is not None
    assert seen.fenced_s < 0.95 * SESSION_S
    assert seen.moved == seen.led > 0
    assert seen.stale_s == 0.0
    assert seen.is_back


PAUSE_S = 0.8 * SESSION_S
"""Less than a session with the time since the last call, which is up to a sixth."""


def pause(nemesis: ClusterNemesis, name: str, others: list[str]) -> Callable[[], None]:
    """Stop a process for most of a session; its connections stay."""
    (host,) = (each for each in nemesis._hosts if each.name == name)
    host.pause()
    nemesis._simulator.loop.call_later(PAUSE_S, host.resume)
    return lambda: None


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("seed", first_of(SEEDS))
def test_a_leader_that_was_paused_keeps_leading_until_its_session_is_over(
    monkeypatch: pytest.MonkeyPatch, seed: int, store: str
) -> None:
    assert LostBroker(monkeypatch, pause).run(seed, store).fenced_s is None


STORE_S = 0.55 * SESSION_S
"""Before the broker is fenced, and after it has lost the controller."""


@pytest.mark.parametrize("seed", first_of(SEEDS))
def test_its_coordinators_answer_no_more_when_it_is_fenced(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    seen = LostBroker(monkeypatch, BOTH, of_store_s=STORE_S).run(seed)
    assert seen.moved == seen.led > 0
    assert seen.stale_s == 0.0


def test_with_leases_for_most_of_a_session_two_coordinators_would_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lease, "_CONTACT_MAX", 0.9)
    runs = (LostBroker(monkeypatch, BOTH, of_store_s=STORE_S).run(seed) for seed in SEEDS)
    assert any(seen.stale_s > 0.0 for seen in runs)


def test_without_heartbeats_in_the_store_a_paused_leader_would_be_fenced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(controller, "_RUNS", 1.0)
    assert LostBroker(monkeypatch, pause).run(1).fenced_s is not None
