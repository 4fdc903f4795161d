"""A broker that calls all others, but that none can call, does not stop its partitions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lakelog.server.inter_broker.silence import NONE, Deafness
from lost_broker import LostBroker
from one_way_filter import refuse
from repetitions import first_of
from simulator.cluster.nemesis import ClusterNemesis
from simulator.cluster.plan import SESSION_S

SEEDS = (1, 2, 3)


def filter_calls(nemesis: ClusterNemesis, name: str, others: list[str]) -> Callable[[], None]:
    """Refuse the connections of all other brokers to one broker."""
    mends = [refuse(nemesis._network, each, name) for each in others]

    def mend() -> None:
        for each in reversed(mends):
            each()

    return mend


@pytest.mark.parametrize("of_controller", [False, True], ids=["leader", "controller"])
@pytest.mark.parametrize("seed", first_of(SEEDS))
def test_others_lead_within_a_session_and_two_seconds(
    monkeypatch: pytest.MonkeyPatch, seed: int, of_controller: bool
) -> None:
    seen = LostBroker(monkeypatch, filter_calls, of_controller=of_controller).run(seed)
    assert seen.fenced_s is not None
    assert 0.8 * SESSION_S < seen.fenced_s < SESSION_S + 2.0
    assert seen.moved == seen.led > 0
    assert seen.stale_s == 0.0
    assert seen.is_back


STORE_S = 1.0 * SESSION_S
"""Shortly before the broker is fenced."""


@pytest.mark.parametrize("seed", first_of(SEEDS))
def test_its_coordinators_answer_no_more_when_it_is_fenced(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    seen = LostBroker(monkeypatch, filter_calls, of_store_s=STORE_S).run(seed)
    assert seen.moved == seen.led > 0
    assert seen.stale_s == 0.0


def test_without_denials_two_coordinators_would_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def deaf(found: Deafness) -> frozenset[int]:
        brokers = found._brokers.items()
        return frozenset(
            node_id for node_id, broker in brokers if broker.missed_s >= 0.6 * SESSION_S
        )

    monkeypatch.setattr(Deafness, "deaf", deaf)
    monkeypatch.setattr(Deafness, "denial", lambda found, node_id, is_controller: NONE)
    runs = (LostBroker(monkeypatch, filter_calls, of_store_s=STORE_S).run(seed) for seed in SEEDS)
    assert any(seen.stale_s > 0.0 for seen in runs)
