"""Which brokers no other one reaches, by the reports of all."""

from __future__ import annotations

import pytest

from lakelog.server.authentication import Process
from lakelog.server.inter_broker.deafness import NONE, Deafness

SESSION_S, TICK_S = 9.0, 0.25
FOUND_S = 0.6 * SESSION_S
PROCESSES = {node_id: Process(node_id, bytes([node_id]) * 16) for node_id in (2, 3, 4, 5)}


class Scene:
    """The view of broker 1; `missed` has the brokers that do not answer each broker.

    Brokers with the missed value None send no report.
    """

    def __init__(self, *others: int) -> None:
        self.found = Deafness(SESSION_S)
        self.found.follow([PROCESSES[each] for each in others])
        self.others = others
        self.missed: dict[int, set[int] | None] = {each: set() for each in (1, *others)}
        self.ended: dict[int, int] = {}

    def pass_s(self, seconds: float) -> None:
        """Let all brokers call this one, and end their leases when they are denied."""
        for _ in range(round(seconds / TICK_S)):
            for each in self.others:
                missed = self.missed[each]
                if missed is not None:
                    ended = self.ended.get(each, NONE)
                    self.found.note_report(each, frozenset(missed), ended)
                    self.ended[each] = self.found.denial(each, is_controller=True)
            own = frozenset(self.missed[1] or ())
            self.found.tick(TICK_S, frozenset(self.others) - own, own)

    def hide(self, deaf: int, *also_from: int) -> None:
        """Have a broker not answer this one and others."""
        for each in (1, *also_from):
            missed = self.missed[each]
            assert missed is not None
            missed.add(deaf)


def test_a_broker_that_no_other_reaches_is_deaf_and_is_steady_after_half_a_session() -> None:
    scene = Scene(2, 3)
    scene.hide(2, 3)
    scene.pass_s(FOUND_S - TICK_S)
    assert not scene.found.deaf()
    assert scene.found.is_denied(2)
    scene.pass_s(2 * TICK_S)
    assert scene.found.deaf() == {2}
    scene.missed[1] = set()
    scene.pass_s(0.5 * SESSION_S - TICK_S)
    assert not scene.found.deaf()
    assert scene.found.is_denied(2), "it may come and go"
    scene.pass_s(2 * TICK_S)
    assert not scene.found.is_denied(2)


def test_a_broker_that_was_missed_for_a_short_time_gets_its_lease_at_once() -> None:
    scene = Scene(2, 3)
    scene.hide(2, 3)
    scene.pass_s(TICK_S)
    assert scene.found.denial(2, is_controller=True) != NONE
    scene.missed[3] = set()
    scene.pass_s(TICK_S)
    assert scene.found.denial(2, is_controller=True) == NONE


def test_one_way_over_other_brokers_is_enough() -> None:
    scene = Scene(2, 3, 4)
    scene.hide(2, 3)
    scene.hide(4)
    scene.pass_s(2 * SESSION_S)
    assert not scene.found.deaf(), "3 reaches 4, and 4 reaches 2"


def test_the_word_of_a_deaf_broker_does_not_count() -> None:
    scene = Scene(2, 3, 4, 5)
    for deaf in (2, 3):
        scene.hide(deaf, 4, 5)
    scene.pass_s(SESSION_S)
    assert scene.found.deaf() == {2, 3}, "they reach each other"
    scene = Scene(2, 3, 4)
    for other in (2, 3, 4):
        scene.hide(other, *({2, 3, 4} - {other}))
    scene.missed[1] = {4}
    scene.pass_s(SESSION_S)
    assert scene.found.deaf() == {4}, "they miss each other, and this broker reaches 2 and 3"


@pytest.mark.parametrize(
    ("others", "deaf", "witnesses"),
    [((2,), (2,), ()), ((2, 3), (2, 3), ()), ((2, 3, 4, 5), (2, 3, 4), (5,))],
    ids=["two brokers", "this one is mute", "a minority"],
)
def test_without_half_of_the_brokers_there_is_no_conclusion(
    others: tuple[int, ...], deaf: tuple[int, ...], witnesses: tuple[int, ...]
) -> None:
    scene = Scene(*others)
    for each in deaf:
        scene.hide(each, *witnesses)
    scene.pass_s(2 * SESSION_S)
    assert not scene.found.deaf()
    assert not any(map(scene.found.is_denied, others))


def test_a_broker_without_reports_counts_as_if_it_reached_all() -> None:
    scene = Scene(2, 3)
    scene.hide(2)
    scene.missed[3] = None
    scene.pass_s(2 * SESSION_S)
    assert not scene.found.deaf()


def test_a_broker_stays_deaf_when_its_only_witness_is_silent() -> None:
    scene = Scene(2, 3)
    scene.hide(2, 3)
    scene.pass_s(SESSION_S)
    scene.missed[3] = None
    scene.pass_s(2 * SESSION_S)
    assert scene.found.is_denied(2), "an old report shows no way to it"
    scene.missed[1] = set()
    scene.pass_s(SESSION_S)
    assert not scene.found.is_denied(2)


def test_it_is_not_deaf_before_its_lease_has_ended() -> None:
    scene = Scene(2, 3)
    scene.hide(2, 3)
    scene.pass_s(SESSION_S)
    denial = scene.found.denial(2, is_controller=True)
    scene.found.forget_denials()
    assert not scene.found.deaf(), "another controller may have extended it meanwhile"
    scene.found.note_report(2, frozenset(), denial)
    assert not scene.found.deaf()
    denial = scene.found.denial(2, is_controller=True)
    assert scene.found.denial(2, is_controller=False) == NONE, "this answer is no denial"
    scene.found.note_report(2, frozenset(), denial)
    assert not scene.found.deaf()
    scene.found.note_report(2, frozenset(), scene.found.denial(2, is_controller=True))
    assert scene.found.deaf() == {2}


def test_another_process_is_not_deaf() -> None:
    scene = Scene(2, 3)
    scene.hide(2, 3)
    scene.pass_s(SESSION_S)
    scene.found.follow([Process(2, b"n" * 16), PROCESSES[3]])
    assert not scene.found.is_denied(2)
    scene.found.follow([PROCESSES[3]])
    scene.found.note_report(2, frozenset(), NONE)
    assert scene.found.denial(2, is_controller=True) == NONE


def test_a_broker_that_is_given_up_gets_no_lease_until_half_a_session_after_its_fencing() -> None:
    scene = Scene(2, 3)
    scene.pass_s(1.0)
    scene.found.give_up([2, 9])
    scene.pass_s(SESSION_S)
    assert scene.found.is_denied(2), "its fencing may not be committed yet"
    assert not scene.found.is_denied(3)
    scene.found.settle()
    scene.pass_s(0.5 * SESSION_S - TICK_S)
    assert scene.found.is_denied(2), "it may not know of its fencing yet"
    scene.found.settle()
    scene.pass_s(TICK_S)
    assert not scene.found.is_denied(2)
