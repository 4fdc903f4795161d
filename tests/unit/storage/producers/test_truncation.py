"""A thread replays the producers before a truncation; the loop reads only a few batches."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from doubles.disk import MemoryDisk
from lakelog.base.config.log_config import LogConfig
from lakelog.storage.errors import CorruptLog
from lakelog.storage.log import Log
from lakelog.storage.names import LOG
from lakelog.storage.preparation import NotReady, Preparation
from lakelog.storage.producers.truncation import TruncationJob
from storage_kit import (
    NOW,
    Store,
    aborted_by_segment,
    append,
    append_in_transaction,
    append_marker,
    make_batch,
    memory_store,
)

BATCH = 5
"""Records in a batch."""


def filled(batches: int, segment_bytes: int = 1 << 30) -> Store:
    """A log with an idempotent producer, and an aborted transaction in its first segment."""
    store = memory_store(LogConfig(segment_bytes=segment_bytes))
    log = store.create()
    append_in_transaction(log, (50, 0, 0))
    append_marker(log, 50, 0, commit=False)
    for number in range(batches):
        batch = make_batch(BATCH, size=200, producer=(7, 0, number * BATCH))
        append(log, batch, now_ms=NOW)
    return store


def job_of(log: Log, offset: int) -> Preparation:
    """Return the job that a truncation needs first."""
    with pytest.raises(NotReady) as raised:
        log.truncate_to(offset, may_wait=False)
    return raised.value.job


def state(log: Log) -> object:
    entries = {
        producer_id: (entry.epoch, list(entry.batches), entry.txn_first_offset)
        for producer_id, entry in log.producers.entries.items()
    }
    return log.log_end_offset, log.producers.end_offset, entries, aborted_by_segment(log)


class Reads:
    """Counts the bytes that are read from files."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = 0
        opening = MemoryDisk.open

        def opened(disk: MemoryDisk, *arguments: object, **named: object) -> object:
            file = opening(disk, *arguments, **named)  # type: ignore[arg-type]
            reading: Callable[[int, int], bytes] = file.read_at

            def read_at(offset: int, size: int) -> bytes:
                data = reading(offset, size)
                self.bytes += len(data)
                return data

            file.read_at = read_at  # type: ignore[method-assign]
            return file

        monkeypatch.setattr(MemoryDisk, "open", opened)

    @contextmanager
    def in_thread(self) -> Iterator[None]:
        """Do not count these."""
        before = self.bytes
        yield
        self.bytes = before


def read_on_the_loop(batches: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the bytes that the loop reads when it cuts the last batch off a restarted log."""
    store = filled(batches)
    with monkeypatch.context() as patch:
        reads = Reads(patch)
        log = store.restart()
        reads.bytes = 0
        while True:
            try:
                log.truncate_to(log.log_end_offset - 1, may_wait=False)
            except NotReady as first:
                with reads.in_thread():
                    first.job.run()
                first.job.finish()
            else:
                return reads.bytes


def test_the_loop_reads_equally_little_of_a_large_log(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = (read_on_the_loop(batches, monkeypatch) for batches in (40, 1000))
    assert large <= small + 2000
    assert large < 100_000, "of a log of more than a megabyte"


@pytest.mark.parametrize("segment_bytes", [1 << 30, 20_000])
@pytest.mark.parametrize("offset", [0, 1, 2, 150, 333, 501])
def test_the_state_is_that_of_the_remaining_log(offset: int, segment_bytes: int) -> None:
    log = filled(100, segment_bytes).log
    log.truncate_to(offset)
    found = state(log)
    log.rebuild_producers(list(log.segments))
    assert state(log) == found
    log.truncate_to(0)
    assert log.producers.entries == {}


def test_a_job_is_used_although_the_log_grew() -> None:
    log = filled(10).log
    job = job_of(log, 20)
    job.run()
    append(log, make_batch(BATCH, producer=(7, 0, 50)))
    append_in_transaction(log, (51, 0, 0))
    job.finish()
    log.truncate_to(20, may_wait=False)
    assert log.log_end_offset == 17
    assert log.producers.entries[7].last_sequence == 14
    assert 51 not in log.producers.entries


def test_a_job_is_not_used_after_another_truncation() -> None:
    log = filled(10).log
    job = job_of(log, 20)
    job.run()
    log.truncate_to(12)
    append(log, make_batch(1, producer=(8, 0, 0)))
    for _ in range(3):
        append(log, make_batch(BATCH))
    job.finish()
    job_of(log, 20)
    log.truncate_to(20)
    assert sorted(log.producers.entries) == [7, 8, 50]


def test_a_job_whose_segments_retention_removed_is_made_again() -> None:
    store = filled(100, 20_000)
    log = store.log
    job = job_of(log, 480)
    log.use_config(log.config._replace(retention_bytes=50_000))
    while log.delete_old_segments(NOW, at_once=True):
        pass
    log.delete_old_segments(NOW, at_once=True)
    job.run()
    job.finish()
    assert job.failure is None
    log.truncate_to(480)
    assert log.log_end_offset <= 480


def test_a_failure_of_the_device_removes_nothing() -> None:
    store = filled(10)
    log, end = store.log, store.log.log_end_offset
    job = job_of(log, 20)
    assert isinstance(job, TruncationJob)
    store.memory_disk.fail("read", errno.EIO, suffix=LOG)
    job.run()
    job.finish()
    assert job.failure is not None
    assert log.log_end_offset == end


def test_a_damaged_log_is_not_truncated() -> None:
    store = filled(10)
    log, end = store.log, store.log.log_end_offset
    segment = log.segments.active
    damaged = segment.position_of(7) + 8  # the length of a batch
    store.memory_disk.open(segment.path(LOG)).write_at(damaged, b"\xff" * 8)
    with pytest.raises(CorruptLog):
        log.truncate_to(40)
    assert log.log_end_offset == end
