"""Producers are remembered up to a bound, and of more the oldest are forgotten."""

from __future__ import annotations

import tracemalloc

import pytest

from lakelog.records.batch import BatchHeader, read_header
from lakelog.records.control import EndTransactionMarker
from lakelog.storage.producers.limit import ProducerLimit
from lakelog.storage.producers.state import ProducerStateTable
from storage_kit import NOW, make_batch, memory_store

LIMIT = 200


def _header(producer_id: int, *, transactional: bool = False) -> BatchHeader:
    header = read_header(make_batch(producer=(0, 0, 0), transactional=transactional))
    header.producer_id = producer_id
    return header


class Writing:
    """Appends to one table, batch after batch."""

    def __init__(self, table: ProducerStateTable) -> None:
        self.table = table
        self._end = 0

    def write(self, producer_id: int, *, transactional: bool = False) -> None:
        self.table.update(_header(producer_id, transactional=transactional), self._end)
        self._end += 1

    def end_transaction(self, producer_id: int) -> None:
        self.table.end_transaction(_header(producer_id), EndTransactionMarker(True, 0))
        self._end += 1


@pytest.mark.long
def test_a_flood_of_producers_takes_bounded_memory() -> None:
    writing = Writing(ProducerLimit(LIMIT).new_table())
    header = _header(0)
    for number in range(LIMIT):
        writing.write(number)
    tracemalloc.start()
    for number in range(LIMIT, 100 * LIMIT):
        header.producer_id = number
        writing.table.update(header, number)
        assert len(writing.table) <= LIMIT + LIMIT // 64 + 1
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert taken < LIMIT * 2_000


def test_producers_that_write_stay() -> None:
    writing = Writing(ProducerLimit(LIMIT).new_table())
    for number in range(20 * LIMIT):
        writing.write(number)
        if not number % 100:
            writing.write(-1)
        assert number == 0 or -1 in writing.table.entries
        assert number in writing.table.entries


def test_producers_of_transactions_are_not_forgotten() -> None:
    writing = Writing(ProducerLimit(LIMIT).new_table())
    writing.write(-1, transactional=True)
    writing.write(-2, transactional=True)
    writing.end_transaction(-2)
    for number in range(20 * LIMIT):
        writing.write(number)
    assert {-1, -2} <= writing.table.entries.keys()
    assert writing.table.first_unstable_offset == 0


def test_the_log_with_the_most_gives_room_to_others() -> None:
    capacity = ProducerLimit(LIMIT)
    flooded, quiet = Writing(capacity.new_table()), Writing(capacity.new_table())
    for number in range(20 * LIMIT):
        flooded.write(number)
        if number < 50:
            quiet.write(number)
    assert len(quiet.table) == 50
    assert len(flooded.table) <= LIMIT


def test_a_log_that_is_gone_is_not_counted() -> None:
    capacity = ProducerLimit(LIMIT)
    gone = Writing(capacity.new_table())
    for number in range(LIMIT):
        gone.write(number)
    del gone
    writing = Writing(capacity.new_table())
    for number in range(LIMIT - LIMIT // 16):
        writing.write(number)
    assert len(writing.table) == LIMIT - LIMIT // 16


def test_a_forgotten_producer_continues_its_sequence() -> None:
    store = memory_store()
    store.directory.producers = ProducerLimit(LIMIT)
    log = store.create()
    for number in range(2 * LIMIT):
        log.append(make_batch(producer=(number, 0, 0)), leader_epoch=1, now_ms=NOW)
    assert 0 not in log.producers.entries
    result = log.append(make_batch(producer=(0, 0, 1)), leader_epoch=1, now_ms=NOW)
    assert result.base_offset == 2 * LIMIT
