"""Checks of whole partitions: losses, disorder and half transactions."""

from __future__ import annotations

import pytest

from simulator.checkers.findings import Findings
from simulator.checkers.laws import Law
from simulator.checkers.observations import Fate, HiddenRange
from simulator.checkers.partition_check import check_partition, check_transactions
from simulator.checkers.record_history import RecordHistory

PLACE = ("topic", 0)


@pytest.fixture
def history() -> RecordHistory:
    """Two values of one producer are acknowledged at offsets 0 and 1."""
    history = RecordHistory(Findings())
    history.will_send(PLACE, [b"a", b"b"], once=True, producer_id=7)
    history.acknowledged(PLACE, 0, [b"a", b"b"])
    return history


def in_transaction(fate: Fate) -> RecordHistory:
    history = RecordHistory(Findings())
    transaction = history.begin("t")
    transaction.fate = fate
    history.will_send(PLACE, [b"a", b"b"], transaction=transaction)
    history.acknowledged(PLACE, 0, [b"a", b"b"])
    return history


def test_a_complete_partition(history: RecordHistory) -> None:
    check_partition(history, PLACE, {0: b"a", 1: b"b"}, committed=True)
    assert history.findings.violations == []


def test_an_acknowledged_value_is_missing(history: RecordHistory) -> None:
    check_partition(history, PLACE, {0: b"a"}, committed=False)
    assert history.findings.broken == {Law.KEPT}


def test_a_deleted_value_may_be_missing(history: RecordHistory) -> None:
    history.deleted(PLACE, 1)
    check_partition(history, PLACE, {1: b"b"}, committed=False)
    assert history.findings.violations == []


def test_a_value_near_damage_may_be_missing(history: RecordHistory) -> None:
    history.partition(PLACE).hidden.append(HiddenRange(1, 1, 2))
    check_partition(history, PLACE, {0: b"a"}, committed=False)
    assert history.findings.violations == []


def test_values_are_in_the_order_of_sending() -> None:
    history = RecordHistory(Findings())
    history.will_send(PLACE, [b"a", b"b"], once=True, producer_id=7)
    check_partition(history, PLACE, {0: b"b", 1: b"a"}, committed=False)
    assert history.findings.broken == {Law.IN_ORDER}


def test_a_committed_transaction_is_missing() -> None:
    history = in_transaction(Fate.COMMITTED)
    check_partition(history, PLACE, {}, committed=True)
    assert history.findings.broken == {Law.KEPT}


def test_a_transaction_of_unknown_outcome_may_be_missing() -> None:
    history = in_transaction(Fate.COMMITTING)
    check_partition(history, PLACE, {}, committed=True)
    assert history.findings.violations == []


@pytest.mark.parametrize(
    ("fate", "seen", "breaks"),
    [
        (Fate.COMMITTING, set(), False),
        (Fate.COMMITTING, {b"a"}, True),
        (Fate.COMMITTING, {b"a", b"b"}, False),
        (Fate.COMMITTED, set(), True),
        (Fate.COMMITTED, {b"a"}, True),
        (Fate.COMMITTED, {b"a", b"b"}, False),
    ],
)
def test_a_transaction_is_whole(fate: Fate, seen: set[bytes], breaks: bool) -> None:
    history = in_transaction(fate)
    check_transactions(history, seen, [PLACE])
    assert history.findings.broken == ({Law.WHOLE} if breaks else set())


def test_compaction_may_have_replaced_a_part_of_a_transaction() -> None:
    history = in_transaction(Fate.COMMITTED)
    history.partition(PLACE).compacted = True
    check_transactions(history, {b"a"}, [PLACE])
    assert history.findings.violations == []
