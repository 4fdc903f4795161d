"""The law of availability obliges a sound majority with a complete member, and no other."""

from __future__ import annotations

from itertools import combinations

from simulator.checkers.findings import Findings
from simulator.checkers.laws import Law
from simulator.cluster.availability import COMPLETE_S, SILENCE_S_MAX, Availability
from simulator.cluster.soundness import Soundness

PLACE = "pulse", 0
STEP_S = 0.1


def state(*able: int, starts: int = 1) -> Soundness:
    """Return the state in which only these brokers can work; the first has started so often."""
    whole = frozenset(able)
    return Soundness(
        {1: starts, 2: 1, 3: 1}, whole, frozenset(combinations(sorted(able), 2)), whole
    )


class Cluster:
    def __init__(self) -> None:
        self.findings = Findings()
        self.now = 0.0
        self.law = Availability(self.findings, state(1, 2, 3), 0.0)
        self.law.watch(PLACE, (1, 2, 3))

    def spend(self, seconds: float, present: Soundness, *, acknowledges: bool) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += STEP_S
            self.law.observe(present, self.now)
            if acknowledges:
                self.law.acknowledged(PLACE)

    def breaks(self) -> bool:
        return Law.AVAILABLE in self.findings.broken


def test_a_cluster_that_acknowledges_keeps_it() -> None:
    cluster = Cluster()
    cluster.spend(30.0, state(1, 2, 3), acknowledges=True)
    assert not cluster.breaks()


def test_the_majority_has_a_session_and_two_seconds_after_a_death() -> None:
    cluster = Cluster()
    cluster.spend(SILENCE_S_MAX - STEP_S, state(2, 3), acknowledges=False)
    assert not cluster.breaks()
    cluster.spend(3 * STEP_S, state(2, 3), acknowledges=False)
    assert cluster.breaks()


def test_a_death_restarts_the_clock_and_a_return_does_not() -> None:
    cluster = Cluster()
    cluster.spend(3.0, state(2, 3), acknowledges=False)
    cluster.spend(1.5, state(1, 2, 3), acknowledges=False)
    assert not cluster.breaks()
    cluster.spend(1.0, state(1, 2, 3), acknowledges=False)
    assert cluster.breaks()
    other = Cluster()
    other.spend(3.0, state(2, 3), acknowledges=False)
    other.spend(3.0, state(1, 2, 3), acknowledges=False)
    other.spend(0.5, state(1, 2), acknowledges=False)
    assert Law.AVAILABLE in other.findings.broken, "the silence was too long before the second"


def test_one_broker_is_not_obliged() -> None:
    cluster = Cluster()
    cluster.spend(60.0, state(3), acknowledges=False)
    assert not cluster.breaks()
    assert cluster.law.silent_s(PLACE) > 50.0


def test_a_majority_without_a_complete_member_is_not_obliged() -> None:
    cluster = Cluster()
    cluster.spend(10.0, state(2, 3), acknowledges=True)
    cluster.spend(1.0, state(3), acknowledges=False)
    # The only broker with all records dies, and the first one returns without them.
    cluster.spend(1.0, state(), acknowledges=False)
    cluster.spend(20.0, state(1), acknowledges=False)
    assert not cluster.breaks()
    cluster.spend(COMPLETE_S + SILENCE_S_MAX + 1.0, state(1, 3, starts=2), acknowledges=False)
    assert cluster.breaks(), "with a complete member it is obliged"


def test_a_broker_that_returned_has_the_time_to_copy() -> None:
    cluster = Cluster()
    cluster.spend(10.0, state(2, 3), acknowledges=True)
    cluster.spend(COMPLETE_S - 1.0, state(1, 2, starts=2), acknowledges=False)
    assert cluster.law.able_s(1) < COMPLETE_S
    cluster.spend(SILENCE_S_MAX, state(1, 2, starts=2), acknowledges=False)
    assert not cluster.breaks()
    cluster.spend(2.0, state(1, 2, starts=2), acknowledges=False)
    assert cluster.breaks()


def test_a_restart_between_two_looks_is_noticed() -> None:
    cluster = Cluster()
    cluster.spend(10.0, state(1, 2, 3), acknowledges=True)
    cluster.spend(1.0, state(1, 2, 3, starts=2), acknowledges=True)
    assert cluster.law.able_s(1) < 1.5
    assert cluster.law.able_s(2) > 10.0


def test_a_pair_beside_a_cut_is_obliged() -> None:
    cluster = Cluster()
    able, joined = frozenset({1, 2, 3}), frozenset({2, 3})
    beside_a_cut = Soundness({1: 1, 2: 1, 3: 1}, able, frozenset({(2, 3)}), joined)
    cluster.spend(SILENCE_S_MAX + 1.0, beside_a_cut, acknowledges=False)
    assert cluster.breaks()


def test_a_partition_on_a_new_broker_is_watched_from_its_creation() -> None:
    cluster = Cluster()
    added = "pulse", 1
    whole = frozenset({1, 2, 3, 4})
    grown = Soundness(
        dict.fromkeys(whole, 1), whole, frozenset(combinations(sorted(whole), 2)), whole
    )
    cluster.spend(COMPLETE_S + 1.0, grown, acknowledges=True)
    cluster.law.watch(added, (1, 2, 4))
    cluster.spend(SILENCE_S_MAX - 1.0, grown, acknowledges=True)
    assert not cluster.breaks()
    cluster.spend(2.0, grown, acknowledges=True)
    assert cluster.breaks(), "it has acknowledged nothing"


def test_brokers_without_a_replica_oblige_no_partition() -> None:
    cluster = Cluster()
    rest = Soundness(
        {1: 1, 2: 1, 3: 1, 4: 1}, frozenset({3, 4}), frozenset({(3, 4)}), frozenset({3, 4})
    )
    cluster.spend(60.0, rest, acknowledges=False)
    assert not cluster.breaks()


def test_a_new_broker_is_no_excuse() -> None:
    cluster = Cluster()
    cluster.spend(3.0, state(1, 2, 3), acknowledges=False)
    whole = frozenset({1, 2, 3})
    pairs = frozenset(combinations(sorted(whole), 2))
    grown = Soundness({1: 1, 2: 1, 3: 1, 4: 1}, whole, pairs, whole)
    cluster.spend(3.0, grown, acknowledges=False)
    assert cluster.breaks()
