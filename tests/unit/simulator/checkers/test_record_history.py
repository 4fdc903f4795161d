"""The history of records: each law that it checks is broken once, and each excuse accepted once."""

from __future__ import annotations

import pytest

from simulator.checkers.findings import Findings
from simulator.checkers.laws import Law
from simulator.checkers.observations import Fate, Transaction
from simulator.checkers.record_history import RecordHistory

PLACE = ("topic", 0)


@pytest.fixture
def history() -> RecordHistory:
    return RecordHistory(Findings())


def send(
    history: RecordHistory, *values: bytes, once: bool = False, fate: Fate | None = None
) -> Transaction | None:
    transaction = None
    if fate is not None:
        transaction = history.begin("t")
        transaction.fate = fate
    history.will_send(PLACE, values, once=once, transaction=transaction)
    return transaction


def test_two_values_at_one_offset(history: RecordHistory) -> None:
    send(history, b"a", b"b")
    history.acknowledged(PLACE, 0, [b"a"])
    history.read(PLACE, 0, b"a", committed=False)
    assert history.findings.violations == []
    history.read(PLACE, 0, b"b", committed=False)
    assert history.findings.broken == {Law.ONE_VALUE}


def test_an_idempotent_value_at_two_offsets(history: RecordHistory) -> None:
    send(history, b"a", once=True)
    history.acknowledged(PLACE, 0, [b"a"])
    history.read(PLACE, 1, b"a", committed=False)
    assert history.findings.broken == {Law.ONCE}


def test_a_plain_value_may_be_at_two_offsets(history: RecordHistory) -> None:
    send(history, b"a")
    history.acknowledged(PLACE, 0, [b"a"])
    history.read(PLACE, 1, b"a", committed=False)
    assert history.findings.violations == []


def test_a_value_that_was_not_sent_there(history: RecordHistory) -> None:
    history.will_send(("topic", 1), [b"a"])
    history.read(PLACE, 0, b"a", committed=False)
    assert history.findings.broken == {Law.WRITTEN}


@pytest.mark.parametrize("fate", Fate)
def test_readers_of_committed_records_see_no_other(history: RecordHistory, fate: Fate) -> None:
    send(history, b"a", fate=fate)
    history.read(PLACE, 0, b"a", committed=True)
    violates = fate in (Fate.OPEN, Fate.ABORTED)
    assert history.findings.broken == ({Law.COMMITTED_ONLY} if violates else set())


def test_a_transaction_whose_commit_was_cut_off_may_look_aborted(history: RecordHistory) -> None:
    transaction = send(history, b"a", fate=Fate.COMMITTED)
    assert transaction is not None
    transaction.ends = {PLACE: 2}
    history.cut(PLACE, 1)
    assert transaction.torn
    assert not transaction.is_committed
    assert not transaction.is_open_or_aborted


def test_records_behind_a_cut_are_forgotten_and_their_offsets_used_again(
    history: RecordHistory,
) -> None:
    send(history, b"a", b"b", b"c", once=True)
    history.acknowledged(PLACE, 0, [b"a", b"b"])
    history.cut(PLACE, 1)
    history.acknowledged(PLACE, 1, [b"c"])
    assert history.findings.violations == []
    assert history.partition(PLACE).values == {0: b"a", 1: b"c"}
    assert history.findings.counts["lost with the end of a log"] == 1


@pytest.mark.parametrize(
    ("end", "damaged_at", "breaks"), [(2, None, False), (1, None, True), (1, 1, False)]
)
def test_a_durable_log_keeps_acknowledged_records(
    history: RecordHistory, end: int, damaged_at: int | None, breaks: bool
) -> None:
    send(history, b"a", b"b")
    history.acknowledged(PLACE, 0, [b"a", b"b"])
    history.check_durable(PLACE, end, damaged_at)
    assert history.findings.broken == ({Law.DURABLE} if breaks else set())


def test_a_log_start_rises_by_deletion_only(history: RecordHistory) -> None:
    history.deleted(PLACE, 3)
    history.begins(PLACE, 3)
    assert history.findings.violations == []
    history.begins(PLACE, 4)
    assert history.findings.broken == {Law.START_KEPT}


def test_retention_decides_how_far_a_log_start_may_rise(history: RecordHistory) -> None:
    history.partition(PLACE).retention = lambda start: [5] if start > 5 else []
    history.begins(PLACE, 5)
    assert history.findings.violations == []
    history.begins(PLACE, 6)
    assert history.findings.broken == {Law.RETAINED}


def test_a_forgotten_producer_may_write_a_value_again(history: RecordHistory) -> None:
    history.forgets = lambda partition, since: since < 2.0
    history.will_send(PLACE, [b"a"], once=True, made_at=1.0)
    for offset in (0, 1, 0):
        history.read(PLACE, offset, b"a", committed=False)
    assert history.findings.broken == set()
    assert history.findings.counts["retries of forgotten producers"] == 1
    history.will_send(PLACE, [b"b"], once=True, made_at=3.0)
    history.read(PLACE, 2, b"b", committed=False)
    history.read(PLACE, 3, b"b", committed=False)
    assert history.findings.broken == {Law.ONCE}


def test_a_producer_in_a_transaction_is_not_forgotten(history: RecordHistory) -> None:
    history.forgets = lambda partition, since: True
    send(history, b"a", once=True, fate=Fate.COMMITTED)
    history.read(PLACE, 0, b"a", committed=True)
    history.read(PLACE, 1, b"a", committed=True)
    assert history.findings.broken == {Law.ONCE}


def test_the_committed_end_counts_acknowledged_values_of_committed_transactions(
    history: RecordHistory,
) -> None:
    send(history, b"a", fate=Fate.COMMITTED)
    send(history, b"b", fate=Fate.COMMITTING)
    history.acknowledged(PLACE, 4, [b"a"])
    history.acknowledged(PLACE, 6, [b"b"])
    assert history.committed_end(PLACE) == 5


def test_a_value_is_sent_once(history: RecordHistory) -> None:
    send(history, b"a")
    with pytest.raises(AssertionError, match="unique"):
        send(history, b"a")
    history.forget(PLACE[0])
    send(history, b"a")
