"""The time for which brokers count as silent, and the conclusions of a controller."""

from __future__ import annotations

import pytest

from lakelog.server.authentication import Process
from lakelog.server.inter_broker.silence import LEADS_FOR, LEASE_PERCENT, NONE, Deafness, Silence

SESSION_S, TICK_S = 9.0, 0.25
PROCESSES = {node_id: Process(node_id, bytes([node_id]) * 16) for node_id in (2, 3, 4, 5)}
LIVE = {1: b"1" * 16, **{each.node_id: each.incarnation_id for each in PROCESSES.values()}}


def silence(*others: int, reached: bool = True) -> Silence:
    found = Silence(SESSION_S, TICK_S)
    found.follow([PROCESSES[each] for each in others], 0.0)
    for each in others if reached else ():
        found.note_answer(PROCESSES[each], 0.0)
    return found


def pass_s(found: Silence, seconds: float, *answering: int) -> None:
    for _ in range(round(seconds / TICK_S)):
        found.tick(TICK_S)
        for each in answering:
            found.note_request(each)


def live(*node_ids: int) -> dict[int, bytes]:
    return {each: LIVE[each] for each in (1, *node_ids)}


def test_a_broker_that_does_not_call_is_unheard_after_a_session() -> None:
    found = silence(2, 3)
    pass_s(found, SESSION_S - TICK_S, 3)
    assert not found.unheard()
    found.note_answer(PROCESSES[2], 5.0)
    pass_s(found, TICK_S, 3)
    assert found.unheard() == found.unseen() == {2}, "an answer shows no way for its requests"
    assert found.contact_s(2) == 5.0
    assert not found.unanswering() & {2}
    assert found.unanswering() == {3}, "nor does a request show a way for an own one"


CUT_OFF_S = 0.7 * SESSION_S


def test_a_broker_that_neither_calls_nor_answers_is_cut_off_when_its_lease_is_over() -> None:
    found = silence(2, 3, 4, 5)
    for each in (2, 3, 4):
        found.note_lease(each, LEASE_PERCENT)
    for _ in range(round(CUT_OFF_S / TICK_S)):
        assert not found.cut_off()
        pass_s(found, TICK_S, 3)
        found.note_answer(PROCESSES[4], 1.0)
    pass_s(found, TICK_S)
    assert found.cut_off() == {2}, "broker 5 is of an older version"
    assert not found.unseen()
    found.note_relayed(2)
    assert not found.cut_off(), "another broker has sent its request on"
    pass_s(found, SESSION_S)
    assert found.cut_off() == {2, 3, 4, 5}


def test_a_broker_that_was_cut_off_is_steady_after_half_a_session() -> None:
    found = silence(2)
    found.note_lease(2, LEASE_PERCENT)
    pass_s(found, CUT_OFF_S + TICK_S)
    pass_s(found, SESSION_S / 4, 2)
    assert not found.is_steady(2)
    pass_s(found, SESSION_S / 2, 2)
    assert found.is_steady(2)


def test_a_broker_whose_requests_others_send_on_is_seen() -> None:
    found = silence(2)
    for _ in range(8):
        pass_s(found, SESSION_S / 4)
        found.note_relayed(2)
    assert found.unheard() == {2}
    assert not found.unseen()
    assert found.is_steady(2)


def test_an_answer_through_another_broker_counts_as_contact_alone() -> None:
    found = silence(2)
    pass_s(found, SESSION_S)
    found.note_relayed_answer(2, 7.0)
    assert found.contact_s(2) == 7.0
    assert found.unanswering() == {2}


def test_a_pause_of_this_broker_makes_no_other_one_silent() -> None:
    found = silence(2)
    found.tick(100.0)
    assert not found.unreached() | found.unanswering()


def test_an_answer_of_a_former_process_does_not_count_for_the_present_process() -> None:
    found = silence(2)
    pass_s(found, SESSION_S)
    found.note_answer(Process(2, b"f" * 16), 5.0)
    assert found.unanswering() == {2}
    found.follow([Process(2, b"n" * 16)], 9.0)
    assert not found.unanswering()
    assert found.contact_s(2) == 9.0


def test_a_broker_that_comes_and_goes_is_not_steady() -> None:
    found = silence(2)
    assert found.is_steady(2)
    pass_s(found, SESSION_S)
    pass_s(found, SESSION_S / 4, 2)
    assert not found.is_steady(2)
    pass_s(found, SESSION_S)
    pass_s(found, SESSION_S / 4, 2)
    assert not found.is_steady(2)
    pass_s(found, SESSION_S / 2, 2)
    assert found.is_steady(2)


@pytest.mark.parametrize(
    ("others", "answering", "is_half"),
    [
        ((2, 3), (2,), True),
        ((2, 3), (), False),
        ((2,), (), True),
        ((2, 3, 4), (2,), True),
        ((2, 3, 4), (), False),
        ((2, 3, 4, 5), (2,), False),
        ((2, 3, 4, 5), (2, 3), True),
    ],
)
def test_a_controller_has_to_reach_half_of_the_live_brokers(
    others: tuple[int, ...], answering: tuple[int, ...], is_half: bool
) -> None:
    found = silence(*others)
    pass_s(found, SESSION_S * LEADS_FOR + TICK_S, *answering)
    assert found.reaches_half(live(*others)) is is_half


@pytest.mark.parametrize(
    ("others", "most"), [((), 1), ((2,), 2), ((2, 3), 2), ((2, 3, 4), 3), ((2, 3, 4, 5), 3)]
)
def test_a_majority_is_more_than_half_of_the_live_brokers(
    others: tuple[int, ...], most: int
) -> None:
    found = silence(*others)
    assert found.is_majority(most, live(*others))
    assert not found.is_majority(most - 1, live(*others))
    assert found.is_majority(1, live()), "dead brokers do not count"


def test_a_controller_is_missed_three_tenths_of_a_session_after_its_last_answer() -> None:
    found = silence(2, 3)
    pass_s(found, 2.5, 2)
    assert not found.missed()
    found.note_answer(PROCESSES[3], 1.0)
    pass_s(found, TICK_S, 2)
    assert found.missed() == {2}, "its requests are no answers"
    found = silence(2, reached=False)
    pass_s(found, SESSION_S)
    assert not found.missed(), "this broker has never reached it"


def test_a_controller_whose_requests_alone_arrive_is_mute() -> None:
    found = silence(2, 3)
    for _ in range(round(0.6 * SESSION_S / TICK_S)):
        assert found.reaches_half(live(2, 3))
        found.tick(TICK_S)
        for each in (2, 3):
            found.note_answer(PROCESSES[each], 1.0)
    assert not found.reaches_half(live(2, 3)), "no request of another broker has arrived"


def test_dead_brokers_and_brokers_that_were_never_reached_do_not_count() -> None:
    found = silence(2, 3)
    pass_s(found, SESSION_S)
    assert found.reaches_half(live())
    assert not found.reaches_half(live(2, 3))
    found = silence(2, 3, reached=False)
    pass_s(found, SESSION_S)
    assert found.reaches_half(live(2, 3))


def test_an_answer_that_denies_a_lease_is_no_contact() -> None:
    found = silence(2, 3)
    pass_s(found, SESSION_S)
    found.note_denial(PROCESSES[2], 7, 9.0)
    assert found.unanswering() == {3}
    assert found.denial_by(2) == 7
    assert found.contact_s(2) == float("-inf")
    found.note_relayed_answer(2, 8.5)
    assert found.contact_s(2) == float("-inf"), "this call began before the denial"
    found.note_answer(PROCESSES[2], 9.5)
    assert (found.denial_by(2), found.contact_s(2)) == (-1, 9.5)
    found.note_denial(Process(3, b"f" * 16), 7, 9.0)
    assert (found.denial_by(3), found.denial_by(4)) == (-1, -1), "another process denies nothing"


def test_a_broker_that_has_never_answered_is_reported() -> None:
    found = silence(2, 3, reached=False)
    found.note_request(2)
    found.note_answer(PROCESSES[3], 1.0)
    assert found.unanswered() == {2}
    pass_s(found, SESSION_S)
    assert found.unanswered() == {2, 3}


def test_a_deaf_broker_is_not_steady() -> None:
    found = silence(2, 3)
    for _ in range(round(SESSION_S / TICK_S)):
        found.tick(TICK_S)
        for each in (2, 3):
            found.note_request(each)
        found.note_answer(PROCESSES[3], 1.0)
        found.deafness.note_report(3, frozenset({2}), -1)
    assert not found.is_steady(2)
    assert found.is_steady(3)


FOUND_S = 0.6 * SESSION_S


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
