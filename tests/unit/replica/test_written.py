"""Counts of written records and bytes, which metrics show."""

from __future__ import annotations

import pytest

from lakelog.base.config.log_config import LogConfig
from lakelog.replica.written import WriteCounts
from storage_kit import append, append_in_transaction, append_marker, make_batch, memory_store


def test_records_of_an_earlier_process_do_not_count() -> None:
    store = memory_store()
    append(store.create(), make_batch(4))
    log = store.restart()
    written = WriteCounts(log)
    assert (written.records, written.bytes, written.all_bytes) == (0, 0, 0)
    batch = make_batch(3)
    append(log, batch)
    assert (written.records, written.bytes, written.all_bytes) == (3, len(batch), len(batch))


def test_bytes_add_up_over_closed_segments() -> None:
    log = memory_store(LogConfig(segment_bytes=400)).create()
    written = WriteCounts(log)
    total = 0
    for _ in range(12):
        batch = make_batch(2)
        append(log, batch)
        total += len(batch)
        assert written.all_bytes == written.bytes == total, "also before the roll is noted"
        written.note_roll()
        assert written.all_bytes == total
    assert len(log.segments) > 2
    assert written.records == 24


def test_a_closed_segment_is_noted_once() -> None:
    log = memory_store(LogConfig(segment_bytes=400)).create()
    written = WriteCounts(log)
    while len(log.segments) == 1:
        assert not written.note_roll()
        append(log, make_batch(2))
    assert written.note_roll()
    assert not written.note_roll()


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_counts_in_no_figure_of_producers(commit: bool) -> None:
    log = memory_store().create()
    written = WriteCounts(log)
    append_in_transaction(log, (7, 0, 0), 2)
    records, size = written.records, written.bytes
    append_marker(log, 7, 0, commit=commit)
    written.note_marker(log.size - size)
    assert (written.records, written.bytes) == (records, size) == (2, size)
    assert written.all_bytes == log.size > size


@pytest.mark.parametrize("restarts", [True, False])
def test_a_truncation_below_the_start_takes_nothing_from_the_counts(restarts: bool) -> None:
    store = memory_store()
    first = store.create()
    for _ in range(3):
        append(first, make_batch(4))
    log = store.restart()
    written = WriteCounts(log)
    counts = written.records, written.all_bytes
    if restarts:
        log.restart_at(20)
    else:
        log.truncate_to(4)
    written.note_cut(*counts)
    assert (written.records, written.bytes, written.all_bytes) == (0, 0, 0)
    append_in_transaction(log, (7, 0, 0), 2)
    size = written.all_bytes
    append_marker(log, 7, 0, commit=True)
    written.note_marker(written.all_bytes - size)
    assert (written.records, written.bytes) == (2, size)
