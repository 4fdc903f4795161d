"""Flushes: durable records, and when a flush may claim them."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from doubles.disk import MemoryDisk
from lakelog.base.config.log_config import LogConfig
from lakelog.storage.segments.segment import Segment
from storage_kit import (
    DATA,
    ManualClock,
    Store,
    append,
    append_in_transaction,
    append_marker,
    make_batch,
    memory_store,
    read_batches,
)

SMALL = LogConfig(segment_bytes=400)


def crash(store: Store) -> None:
    assert isinstance(store.disk, MemoryDisk)
    store.disk.crash()
    store.start()


def test_flushed_records_survive_a_power_failure_and_others_need_not() -> None:
    store = memory_store(SMALL)
    log = store.create()
    kept = [make_batch(2) for _ in range(6)]
    for batch in kept:
        append(log, batch)
    log.flush()
    assert log.recovery_point == log.log_end_offset == 12
    append(log, make_batch(2))
    store.directory.write_checkpoints()
    crash(store)
    assert read_batches(store.log) == kept
    assert store.log.recovery_point == 12
    assert store.log.leader_epochs.entries == [(3, 0)]


def test_a_flush_covers_the_log_as_it_was_when_it_began() -> None:
    log = memory_store(SMALL).create()
    append(log, make_batch(3))
    job = log.begin_flush()
    assert job is not None
    append(log, make_batch(3))
    assert log.begin_flush() is None
    job.run()
    log.finish_flush(job)
    assert log.recovery_point == 3
    log.flush()
    assert log.recovery_point == 6
    assert log.begin_flush() is None


def test_a_roll_leaves_the_closed_segment_to_the_next_flush() -> None:
    log = memory_store(SMALL).create()
    for _ in range(9):
        append(log, make_batch(2))
    assert len(log.flushes.unflushed_segments()) == len(log.segments) > 2
    log.flush()
    append(log, make_batch(2))
    assert log.flushes.unflushed_segments() == [log.segments.active]


def test_a_flush_overtaken_by_a_truncation_proves_nothing() -> None:
    log = memory_store(SMALL).create()
    append(log, make_batch(3))
    append(log, make_batch(3))
    job = log.begin_flush()
    assert job is not None
    job.run()
    log.truncate_to(3)
    append(log, make_batch(3))
    log.finish_flush(job)
    assert log.recovery_point == 0
    log.flush()
    assert log.recovery_point == 6


def test_a_flush_of_a_log_deleted_meanwhile_ends_quietly() -> None:
    store = memory_store()
    log = store.create()
    append(log, make_batch(3))
    job = log.begin_flush()
    assert job is not None
    store.directory.schedule_delete(log)
    store.directory.deletions.purge(1 << 60)
    job.run()
    log.finish_flush(job)


def test_a_failed_flush_is_never_tried_again() -> None:
    store = memory_store()
    log = store.create()
    append(log, make_batch(3))
    assert isinstance(store.disk, MemoryDisk)
    store.disk.fail("sync", errno.EIO)
    job = log.begin_flush()
    assert job is not None
    with pytest.raises(OSError):
        job.run()
    job.release()
    assert log.broken
    assert log.begin_flush() is None
    store.directory.close()
    assert not store.disk.exists(DATA / ".kafka_cleanshutdown")
    assert store.start().logs["topic", 0].recovery_point == 0


def test_a_truncation_below_the_recovery_point_is_known_before_it_happens() -> None:
    store = memory_store()
    log = store.create()
    for _ in range(4):
        append(log, make_batch(1))
    log.flush()
    store.directory.write_checkpoints()
    log.truncate_to(2)
    crash(store)
    assert store.directory.failed == {}
    assert store.log.recovery_point == 2


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENOSPC])
def test_a_flush_that_cannot_begin_claims_nothing(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """No name counts as synced, and no file stays open for it."""
    store = memory_store(LogConfig(segment_bytes=200))
    log = store.create()
    for number in range(3):
        append_in_transaction(log, (5, 0, number))
        append_marker(log, 5, 0, commit=False)
    assert len(log.segments) > 1
    last, opened = log.segments.active, Segment.open
    handles = [segment.open() for segment in log.segments]

    def failing(segment: Segment) -> object:
        if segment is last:
            raise OSError(code, os.strerror(code))
        return opened(segment)

    with monkeypatch.context() as patch:
        patch.setattr(Segment, "open", failing)
        with pytest.raises(OSError):
            log.begin_flush()
    assert [handle.readers for handle in handles] == [0] * len(handles)
    assert log.flushes.may_be_closed
    job = log.begin_flush()
    assert job is not None
    assert {log.folder, log.folder.parent} <= set(job.names)
    assert len(job.handles) == len(handles)
    job.run()
    log.finish_flush(job)
    kept = read_batches(log)
    crash(store)
    assert read_batches(store.log) == kept


class SlowVerdict:
    """A file whose first sync takes the device's only error, and raises it when it may."""

    def __init__(self, file: Any, disk: OnceFailingDisk) -> None:
        self._file, self._disk = file, disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def sync(self) -> None:
        if self._disk.taken.is_set():
            self._file.sync()
            return
        self._disk.taken.set()
        assert self._disk.may_tell.wait(60)
        raise OSError(errno.EIO, os.strerror(errno.EIO))


class ToldOfWaiters:
    def __init__(self, disk: OnceFailingDisk) -> None:
        self._lock, self._disk = threading.Lock(), disk

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._disk.may_tell.set()
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class OnceFailingDisk(MemoryDisk):
    """The first sync of a log fails, in its own time: when another waits for it, if any does."""

    def __init__(self) -> None:
        super().__init__(ManualClock())
        self.taken, self.may_tell = threading.Event(), threading.Event()

    def open(self, path: Path, *, create: bool = False) -> Any:
        file = super().open(path, create=create)
        return SlowVerdict(file, self) if path.suffix == ".log" else file

    def mutex(self) -> Any:
        return ToldOfWaiters(self)


def test_a_sync_concurrent_with_a_failing_one_does_not_advance_the_recovery_point() -> None:
    """The other sync has taken the error from the device, but has not raised it yet."""
    disk = OnceFailingDisk()
    log = Store(disk).create()
    append(log, make_batch(2))
    job = log.begin_flush()
    assert job is not None
    errors = []

    def run() -> None:
        try:
            job.run()
        except OSError as error:
            errors.append(error.errno)

    thread = threading.Thread(target=run)
    thread.start()
    assert disk.taken.wait(60)
    try:
        with pytest.raises(OSError, match="another flush"):
            log.flush()
    finally:
        disk.may_tell.set()
        thread.join()
    assert errors == [errno.EIO]
    assert log.recovery_point == 0
    assert log.broken


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
def test_a_flush_without_descriptors_is_put_off_and_claims_nothing(code: int) -> None:
    store = memory_store(SMALL)
    log = store.create()
    append(log, make_batch(2))
    assert isinstance(store.disk, MemoryDisk)
    store.disk.fail("sync", code, suffix=log.folder.name)
    job = log.begin_flush()
    assert job is not None
    with pytest.raises(OSError, match=os.strerror(code)):
        job.run()
    log.flushes.put_off(job)
    assert not log.broken
    assert log.recovery_point == 0
    log.flush()
    assert log.recovery_point == 2
    store.directory.write_checkpoints()
    crash(store)
    assert store.log.log_end_offset == 2


def test_a_blocking_flush_without_descriptors_may_be_repeated() -> None:
    store = memory_store(SMALL)
    log = store.create()
    append(log, make_batch(2))
    assert isinstance(store.disk, MemoryDisk)
    store.disk.fail("sync", errno.EMFILE, suffix=log.folder.name)
    with pytest.raises(OSError, match="Too many open files"):
        log.flush()
    assert not log.broken
    assert log.flushes.may_be_closed, "no flush is under way"
    log.flush()
    assert log.recovery_point == 2
