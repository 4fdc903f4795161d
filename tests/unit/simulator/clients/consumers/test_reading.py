"""Checks of fetched batches: damage, gaps, and records beyond the readable end."""

from __future__ import annotations

import pytest

from lakelog.protocol.fetch import AbortedTransaction, PartitionData
from lakelog.records.batch import patch_offset_and_epoch
from lakelog.records.builder import BatchBuilder
from simulator.checkers.findings import Findings
from simulator.checkers.laws import Law
from simulator.checkers.record_history import RecordHistory
from simulator.clients.consumers.reading import FetchedRecords, check_fetched

PLACE = ("topic", 0)


def batch(offset: int, *values: bytes, producer_id: int = -1) -> bytes:
    builder = BatchBuilder()
    for value in values:
        builder.append(0, None, value)
    built = builder.build(producer_id, 0, 0, is_transactional=producer_id >= 0)
    patch_offset_and_epoch(built, 0, offset, 3)
    return bytes(built)


def response(
    *batches: bytes, end: int = 100, stable: int = 100, aborted: int = -1
) -> PartitionData:
    """A response of partition 0; `aborted` is the id of an aborted producer."""
    return PartitionData(
        partition_index=0,
        high_watermark=end,
        last_stable_offset=stable,
        aborted_transactions=[AbortedTransaction(producer_id=aborted, first_offset=0)]
        if aborted >= 0
        else [],
        records=b"".join(batches),
    )


@pytest.fixture
def history() -> RecordHistory:
    return RecordHistory(Findings())


def fetch(
    history: RecordHistory, answer: PartitionData, offset: int = 5, *, committed: bool = False
) -> FetchedRecords:
    return check_fetched(history, PLACE, offset, answer, committed=committed)


def test_records_below_the_requested_offset_are_skipped(history: RecordHistory) -> None:
    fetched = fetch(history, response(batch(4, b"a", b"b"), batch(6, b"c")))
    assert fetched.values == [(5, b"b"), (6, b"c")]
    assert fetched.next_offset == 7
    assert history.partition(PLACE).epochs == {5: 3, 6: 3}
    assert history.findings.violations == []


def test_a_damaged_batch(history: RecordHistory) -> None:
    damaged = bytearray(batch(5, b"a"))
    damaged[-1] ^= 1
    fetch(history, response(bytes(damaged)))
    assert history.findings.broken == {Law.INTACT}


@pytest.mark.parametrize("first", [3, 6])
def test_a_batch_that_is_not_the_next(history: RecordHistory, first: int) -> None:
    fetch(history, response(batch(first, b"a")))
    assert history.findings.broken == {Law.ADJACENT}


def test_compaction_may_leave_a_gap(history: RecordHistory) -> None:
    history.partition(PLACE).compacted = True
    fetch(history, response(batch(9, b"a")))
    assert history.findings.violations == []


def test_a_record_beyond_the_high_watermark(history: RecordHistory) -> None:
    fetch(history, response(batch(5, b"a"), end=5))
    assert history.findings.broken == {Law.BELOW_WATERMARK}


@pytest.mark.parametrize("committed", [False, True])
def test_a_record_beyond_the_last_stable_offset(history: RecordHistory, committed: bool) -> None:
    fetch(history, response(batch(5, b"a"), stable=5), committed=committed)
    assert history.findings.broken == ({Law.BELOW_STABLE} if committed else set())


@pytest.mark.parametrize(("committed", "values"), [(False, [b"a", b"b"]), (True, [b"b"])])
def test_readers_of_committed_records_skip_aborted_ones(
    history: RecordHistory, committed: bool, values: list[bytes]
) -> None:
    answer = response(batch(5, b"a", producer_id=7), batch(6, b"b"), aborted=7)
    fetched = fetch(history, answer, committed=committed)
    assert [value for _, value in fetched.values] == values
