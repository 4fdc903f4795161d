"""The store shows which processes wait for the controller, and this process for how long."""

from __future__ import annotations

from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import NO_DIRECTORY, BrokerRecord
from lakelog.metadata.store.api import ControllerTerm
from lakelog.server.controller.unregistered import Unregistered

TERM = ControllerTerm(1, 7, b"1" * 16)
OLD, NEW = b"o" * 16, b"n" * 16
IMAGE = MetadataImage().apply_all(
    [BrokerRecord(each, OLD, 1, (), None, NO_DIRECTORY, ()) for each in (1, 2)], 1
)
LIVE = {1: OLD, 2: NEW, 3: NEW}


def test_processes_that_the_log_does_not_register_wait() -> None:
    found = Unregistered(1.0)
    found.observe(IMAGE, LIVE, TERM, 5.0)
    assert found.waiting() == {2, 3}
    assert not found.waiting(0.1)
    found.observe(IMAGE, LIVE, TERM, 5.5)
    assert found.waiting(0.5) == {2, 3}
    found.observe(IMAGE, {**LIVE, 3: OLD}, TERM, 6.0)
    assert found.waiting(0.5) == {2}, "another process of broker 3 has just started"


def test_a_pause_counts_as_one_step() -> None:
    found = Unregistered(1.0)
    found.observe(IMAGE, LIVE, TERM, 5.0)
    found.observe(IMAGE, LIVE, TERM, 50.0)
    assert found.waiting(1.0) == {2, 3}
    assert not found.waiting(1.1)


def test_each_term_and_each_answer_begin_again() -> None:
    found = Unregistered(1.0)
    for term in (TERM, TERM._replace(epoch=8)):
        found.observe(IMAGE, LIVE, term, 5.0)
        assert not found.waiting(0.1)
        found.observe(IMAGE, LIVE, term, 6.0)
        assert found.waiting(1.0)
    found.forget()
    found.observe(IMAGE, LIVE, TERM._replace(epoch=8), 6.5)
    assert found.waiting() and not found.waiting(0.1)
