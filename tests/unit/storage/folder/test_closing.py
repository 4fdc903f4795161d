"""A clean stop of many logs: its cost, and its guarantees."""

from __future__ import annotations

import errno
import math
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from doubles.disk import MemoryDisk
from doubles.disk_faults import Operation
from lakelog.runtime.posix import PosixDisk
from lakelog.storage.checkpoint import RECOVERY_POINTS, decode_offsets
from lakelog.storage.segments.handles import HandleCache
from storage_kit import DATA, ManualClock, Store, append, make_batch, read_batches

CLEAN = DATA / ".kafka_cleanshutdown"


class WatchedDisk(MemoryDisk):
    """Keeps what changed or synced something, and where."""

    def __init__(self) -> None:
        super().__init__(ManualClock())
        self.seen: list[tuple[Operation, Path]] = []

    def step(self, operation: Operation, path: Path):  # type: ignore[no-untyped-def]
        self.seen.append((operation, path))
        return super().step(operation, path)

    def synced(self, path: Path) -> int:
        return self.seen.count(("sync", path))


def store_of(disk: MemoryDisk, logs: int) -> Store:
    store = Store(disk, ManualClock())
    for partition in range(logs):
        store.create(partition=partition).assign_epoch(1)
    return store


def points(disk: MemoryDisk) -> Iterable[int]:
    return decode_offsets(disk.read(DATA / RECOVERY_POINTS)).values()


def test_unchanged_files_are_not_written() -> None:
    """A start gives each log a new leader epoch; without records that leaves no trace."""
    steps = []
    for logs in (3, 12):
        disk = WatchedDisk()
        store = store_of(disk, logs)
        for log in store.directory.logs.values():
            append(log, make_batch(2))
        store.directory.close()
        store.start()
        assert store.directory.clean
        for log in store.directory.logs.values():
            log.assign_epoch(7)
        disk.seen.clear()
        store.directory.close()
        steps.append([path.name for _, path in disk.seen])
        assert store.start().clean
    assert steps[0] == steps[1]


def test_the_folder_of_all_logs_is_synced_once_for_many() -> None:
    disk = WatchedDisk()
    store = store_of(disk, 40)
    checkpoints = {DATA / name for name in disk.list(DATA) if not disk.is_dir(DATA / name)}
    disk.seen.clear()
    store.directory.close()
    files = {path for _, path in disk.seen if path.parent == DATA} - checkpoints
    assert files
    written = sum(path.name.endswith(".tmp") and op == "write" for op, path in disk.seen)
    slices = math.ceil(40 / store.directory.handles.max_open)
    assert 1 <= slices < 4
    assert disk.synced(DATA) == slices + written


def test_everything_survives_a_power_failure_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over several slices."""
    monkeypatch.setattr("lakelog.storage.folder.closing._SLICE_LOGS_MAX", 4)
    disk = MemoryDisk(ManualClock())
    store = store_of(disk, 11)
    batches = {key: make_batch(2) for key in store.directory.logs}
    for key, log in store.directory.logs.items():
        append(log, batches[key])
    store.directory.close()
    disk.crash()
    store.start()
    assert store.directory.clean
    assert not store.directory.failed
    assert not store.directory.recoveries
    assert len(store.directory.logs) == len(batches)
    for key, log in store.directory.logs.items():
        assert read_batches(log) == [batches[key]]
        assert log.leader_epochs.entries == [(3, 0)]
        assert log.recovery_point == 2


@pytest.mark.parametrize("suffix", ["/topic-1/00000000000000000000.log", "/topic-1"])
def test_a_log_that_is_not_durable_keeps_its_recovery_point(suffix: str) -> None:
    disk = MemoryDisk(ManualClock())
    store = store_of(disk, 3)
    for log in store.directory.logs.values():
        append(log, make_batch(2))
    disk.fail("sync", errno.EIO, suffix=suffix)
    store.directory.close()
    assert sorted(points(disk)) == [0, 2, 2]
    assert not disk.exists(CLEAN)


def test_a_log_whose_indexes_cannot_be_written_is_not_called_durable() -> None:
    disk = MemoryDisk(ManualClock())
    store = store_of(disk, 3)
    for log in store.directory.logs.values():
        append(log, make_batch(2))
    disk.fail("write", errno.ENOSPC, suffix="/topic-1/00000000000000000000.timeindex")
    store.directory.close()
    assert sorted(points(disk)) == [0, 2, 2]
    assert not disk.exists(CLEAN)


def test_new_logs_are_not_durable_without_the_folder_they_are_in() -> None:
    disk = MemoryDisk(ManualClock())
    store = store_of(disk, 3)
    for log in store.directory.logs.values():
        append(log, make_batch(2))
    disk.fail("sync", errno.EIO, suffix="/data")
    store.directory.close()
    assert sorted(points(disk)) == [0, 0, 0]
    assert not disk.exists(CLEAN)


def test_a_checkpoint_that_cannot_be_written_still_gives_the_folder_up() -> None:
    disk = MemoryDisk(ManualClock())
    store = store_of(disk, 3)
    disk.fail("sync", errno.EIO, suffix=f"{RECOVERY_POINTS}.tmp")
    with pytest.raises(OSError):
        store.directory.close()
    assert not store.start().clean


def test_the_steps_may_be_taken_by_threads(tmp_path: Path) -> None:
    store = Store(PosixDisk(), ManualClock(), path=tmp_path / "data", max_open=4)
    for partition in range(50):
        append(store.create(partition=partition), make_batch(2))
    with ThreadPoolExecutor(8) as threads:
        for works in store.directory.closing():
            for done in [threads.submit(work) for work in works]:
                done.result()
    assert store.start().clean
    assert [log.log_end_offset for log in store.directory.logs.values()] == [2] * 50
    store.directory.close()


def test_threads_that_write_logs_out_share_no_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """The count of loaded bytes is not guarded: two threads at once would make it wrong."""
    store = store_of(MemoryDisk(ManualClock()), 3)
    for log in store.directory.logs.values():
        append(log, make_batch(2))
    counted: list[object] = []
    with monkeypatch.context() as patch:
        patch.setattr(HandleCache, "free_capacity", lambda self, newest: counted.append(newest))
        steps = store.directory.closing()
        for work in next(steps):
            work()
        assert not counted
    for works in steps:
        for work in works:
            work()
    assert store.start().clean
