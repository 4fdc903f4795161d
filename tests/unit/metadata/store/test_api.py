"""The process that holds a term of the controller."""

from __future__ import annotations

from lakelog.metadata.store.api import ControllerTerm


def test_a_term_is_held_by_the_process_that_took_it() -> None:
    term = ControllerTerm(1, 5, b"a" * 16)
    assert term.is_held({1: b"a" * 16})
    assert not term.is_held({1: b"b" * 16}), "another process of the broker"
    assert not term.is_held({2: b"a" * 16})
    assert not ControllerTerm(-1, 0).is_held({1: b"a" * 16})


def test_a_term_without_a_recorded_process_is_held_by_any_of_its_broker() -> None:
    assert ControllerTerm(1, 5).is_held({1: b"b" * 16})
