"""The time for which brokers count as silent, and the conclusions of a controller."""

from __future__ import annotations

import pytest

from lakelog.server.authentication import Process
from lakelog.server.inter_broker.silence import LEADS_FOR, LEASE_PERCENT, Silence

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
