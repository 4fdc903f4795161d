"""The newest value of each key stays, and tombstones stay for their time."""

from __future__ import annotations

import pytest

from simulator.checkers.compaction import check_keys
from simulator.checkers.findings import Findings
from simulator.checkers.laws import Law
from simulator.checkers.observations import Fate
from simulator.checkers.record_history import RecordHistory

PLACE = ("state", 0)
OLD, NEW, TOMBSTONE = b"k/1", b"k/2", b"k/-3"


def acknowledged(*values: bytes) -> RecordHistory:
    history = RecordHistory(Findings())
    history.partition(PLACE).compacted = True
    history.will_send(PLACE, values)
    history.acknowledged(PLACE, 0, values)
    return history


@pytest.mark.parametrize(
    ("found", "broken"),
    [
        ({0: OLD, 1: NEW}, set()),
        ({1: NEW}, set()),
        ({0: OLD}, {Law.KEYS_KEPT}),
        ({}, {Law.KEYS_KEPT}),
    ],
)
def test_the_newest_value_of_a_key_stays(found: dict[int, bytes], broken: set[Law]) -> None:
    history = acknowledged(OLD, NEW)
    check_keys(history, PLACE, found)
    assert history.findings.broken == broken


def test_an_uncommitted_value_is_not_the_newest() -> None:
    history = acknowledged(OLD)
    transaction = history.begin("t")
    transaction.fate = Fate.COMMITTING
    history.will_send(PLACE, [NEW], transaction=transaction)
    history.acknowledged(PLACE, 1, [NEW])
    check_keys(history, PLACE, {0: OLD})
    assert history.findings.violations == []


@pytest.mark.parametrize("is_due", [False, True])
@pytest.mark.parametrize(
    ("found", "early", "late"),
    [
        ({1: TOMBSTONE}, set(), set()),
        ({}, {Law.TOMBSTONE_KEPT}, set()),
        ({0: OLD}, {Law.DELETED}, {Law.DELETED}),
    ],
)
def test_a_tombstone_stays_for_its_time_and_the_key_is_deleted(
    found: dict[int, bytes], early: set[Law], late: set[Law], is_due: bool
) -> None:
    history = acknowledged(OLD, TOMBSTONE)
    history.partition(PLACE).may_drop_tombstone = lambda made_at: is_due
    check_keys(history, PLACE, found)
    assert history.findings.broken == (late if is_due else early)
