"""Receipts of a set beside the last sequences of the logs."""

from __future__ import annotations

import pytest

from lakelog.coordinator.transaction.requests import NO_SEQUENCE, WrittenTo
from lakelog.coordinator.transaction.sink.commit_sets import RefusedError
from lakelog.coordinator.transaction.sink.receipts import check_records, written_to
from lakelog.protocol.commit_sets import CommitSet, Refusal
from sink_setup import ORDERS, Producer, winner

CLICKS = ("clicks", 1)
ONE, TWO = WrittenTo(*ORDERS, 9, 1), WrittenTo(*CLICKS, 9, 1)


def wanted(records: int) -> CommitSet:
    won = winner("daily/4/0/0", Producer(9, 1), {ORDERS: records, CLICKS: 1})
    return CommitSet(query_id="q", run_id="r", batch=4, winners=[won])


def test_the_partitions_of_all_receipts_are_looked_up() -> None:
    assert sorted(written_to(wanted(3))) == [TWO, ONE]
    assert written_to(CommitSet(query_id="q", run_id="r", batch=4)) == []


@pytest.mark.parametrize("records", [3, 1 << 31, (1 << 31) + 3])
def test_the_last_sequence_is_that_of_the_last_record(records: int) -> None:
    check_records(wanted(records), {ONE: (records - 1) % (1 << 31), TWO: 0})


@pytest.mark.parametrize("last", [NO_SEQUENCE, 0, 1, 3])
def test_a_log_with_other_records_is_named(last: int) -> None:
    text = rf"orders-0 has {last + 1} of the 3 records of the task daily/4/0/0"
    with pytest.raises(RefusedError, match=text) as raised:
        check_records(wanted(3), {ONE: last, TWO: 0})
    assert raised.value.refused.reason == Refusal.RECORDS_LOST
