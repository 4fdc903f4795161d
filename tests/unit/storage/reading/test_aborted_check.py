"""Indexes of aborted transactions: read by a job, compared with the log, rebuilt if wrong."""

from __future__ import annotations

import sys

import pytest

from counted_work import lines_run
from lakelog.base.config.log_config import LogConfig
from lakelog.replica.partition import Partition
from lakelog.storage.indexes.txn_index import ENTRY_SIZE, AbortedTransaction
from lakelog.storage.log import Log
from lakelog.storage.names import LOG, TXN_INDEX
from lakelog.storage.preparation import NotReady, Preparation
from lakelog.storage.reading.aborted_check import AbortedJob
from lakelog.storage.segments.segment import Segment
from storage_kit import (
    DATA,
    NOW,
    Store,
    aborted_by_segment,
    append,
    append_in_transaction,
    append_marker,
    make_batch,
    memory_store,
    sole_leader,
)

SMALL = LogConfig(segment_bytes=600, index_interval_bytes=100, file_delete_delay_ms=0)


FOLDER = DATA / "topic-0"


def indexed(log: Log) -> list[AbortedTransaction]:
    return [entry for entries in aborted_by_segment(log) for entry in entries]


def filled() -> Store:
    store = memory_store(SMALL)
    log = store.create()
    for number in range(30):
        append_in_transaction(log, (number % 3, number // 6, number // 3 % 2))
        if number % 6 == 5:
            for producer_id in range(2):
                append_marker(log, producer_id, number // 6, commit=producer_id == 1)
    return store


def damage(store: Store, how: str | int, suffix: str) -> None:
    """An int flips a bit of that byte in each file."""
    for name in store.disk.list(FOLDER):
        if not name.endswith(suffix):
            continue
        data = bytearray(store.disk.read(FOLDER / name))
        match how:
            case "zero":
                data[:] = bytes(len(data))
            case "cut":
                del data[-1:]
            case "grown":
                data += data[-ENTRY_SIZE:]
            case "version":
                data[1] = 7
            case "order":
                data[18:26] = b"\x7f" * 8
            case int(byte):
                data[byte] ^= 1
        store.disk.write_atomic(FOLDER / name, data)


@pytest.mark.parametrize(
    "how", ["zero", "cut", "grown", "version", "order", *range(0, ENTRY_SIZE - 1, 3), 9, 17, 25]
)
def test_an_index_that_cannot_be_right_is_rebuilt(how: str | int) -> None:
    store = filled()
    expected = indexed(store.log)
    assert len(expected) == 5
    store.directory.close()
    damage(store, how, TXN_INDEX)
    store.start()
    assert indexed(store.log) == expected


def _many_aborted() -> Store:
    """A closed segment with three hundred aborted transactions, and another one."""
    store = memory_store()
    log = store.create()
    for number in range(300):
        append_in_transaction(log, (1, 0, number))
        append_marker(log, 1, 0, commit=False)
    log.roll(NOW)
    append_in_transaction(log, (1, 0, 300))
    append_marker(log, 1, 0, commit=False)
    return store


def _fetch_committed(log: Log, jobs: list[Preparation]) -> list[AbortedTransaction]:
    """As the loop does it; what threads do has been done by `jobs`."""
    partition = Partition(log, sole_leader(3), lambda partition: None)
    partition.assume(sole_leader(3), 0)
    for _ in range(6):
        try:
            found = partition.read_committed(0, 1 << 20, min_one=True)
        except NotReady as first:
            trace = sys.gettrace()
            sys.settrace(None)
            first.job.run()
            sys.settrace(trace)
            first.job.finish()
            assert first.job.failure is None
            jobs.append(first.job)
        else:
            assert found is not None
            found.release()
            return list(found.aborted)
    raise AssertionError("a fetch is never ready")


def test_a_transaction_index_is_read_and_compared_by_a_job() -> None:
    store = _many_aborted()
    expected = indexed(store.log)
    log = store.restart()
    jobs: list[Preparation] = []
    told: list[AbortedTransaction] = []
    lines = lines_run(lambda: told.extend(_fetch_committed(log, jobs)))
    assert told == expected[:300]
    assert [type(job) for job in jobs].count(AbortedJob) == 1
    assert lines < 300 * 30, "a comparison alone takes about a hundred lines an entry"
    for segment in log.segments:
        assert segment.handle is None or segment.handle.readers == 0


@pytest.mark.parametrize("position", [9, 17, 25])
def test_a_wrong_transaction_index_is_not_believed_after_a_job(position: int) -> None:
    """The producer, and where a transaction begins and ends."""
    store = _many_aborted()
    expected = indexed(store.log)
    store.directory.close()
    path = store.log.segments[0].path(TXN_INDEX)
    data = bytearray(store.disk.read(path))
    data[34 * 20 + position] ^= 1
    store.disk.write_atomic(path, bytes(data))
    log = store.start().logs["topic", 0]
    assert _fetch_committed(log, []) == expected[:300]


def test_entries_read_before_a_truncation_are_not_used() -> None:
    log = _many_aborted().restart()
    index = log.segments[0].txn_index
    assert index is not None
    job = AbortedJob(log.segments, log.snapshots, log.segments[0], index)
    job.run()
    log.truncate_to(20)
    job.finish()
    assert [entry.last_offset for entry in indexed(log)] == list(range(1, 20, 2))


def test_a_job_ignores_findings_about_a_segment_that_compaction_replaced() -> None:
    """Only the last batch of the segment in which an aborted transaction began is left."""
    store = memory_store()
    log = store.create()
    append_in_transaction(log, (1, 0, 0))
    left = log.segments.active.size
    append(log, make_batch())
    log.roll(NOW)
    append_marker(log, 1, 0, commit=False)
    log.roll(NOW)
    expected = indexed(log)
    log = store.restart()
    old, segment, _ = log.segments
    assert segment.txn_index is not None
    job = AbortedJob(log.segments, log.snapshots, segment, segment.txn_index)
    last = old.open().file.read_at(left, old.size - left)
    new = Segment(old._handles, old.folder, old.base_offset, log.config, created_ms=NOW)
    new.size, new.next_offset, new.sealed = len(last), old.next_offset, True
    log.segments.replace([old], new, NOW)
    store.disk.write_atomic(new.path(LOG), last)
    job.run()
    job.finish()
    assert job.failure is None
    assert indexed(log) == expected


def test_an_index_that_grew_since_the_start_is_believed_when_it_is_read_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = memory_store()
    log = store.create()
    append_in_transaction(log, (1, 0, 0))
    append_marker(log, 1, 0, commit=False)
    log = store.restart()
    append_in_transaction(log, (1, 0, 1))
    append_marker(log, 1, 0, commit=False)
    expected = indexed(log)
    log.roll(NOW)
    log.segments[0].unload()
    caplog.clear()
    assert indexed(log) == expected
    assert caplog.messages == []
