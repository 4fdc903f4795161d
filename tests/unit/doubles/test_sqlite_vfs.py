"""SQLite on the simulated disk: each of its calls as a crash point of the metadata log."""

from __future__ import annotations

import contextlib
import errno
from pathlib import Path

import pytest

from doubles.disk import DiskStopped, MemoryDisk
from doubles.disk_faults import Operation
from doubles.randomness import SeededRandom
from doubles.sqlite_metadata import MemoryDatabase
from doubles.sqlite_vfs import Mount
from lakelog.metadata.errors import MetadataMissing, MetadataUnavailable
from lakelog.metadata.store.api import EntryOutcome, MetadataBatch
from lakelog.metadata.store.sqlite import SqliteLog
from storage_kit import ManualClock

PATH = Path("/data/metadata.db")
APPENDS = 6


class Folder:
    def __init__(self) -> None:
        self.disk = MemoryDisk(ManualClock())
        self.disk.make_dirs(PATH.parent)
        self.disk.sync_dir(Path("/"))
        self.acked = 0

    def start(self) -> tuple[SqliteLog, Mount]:
        mount = Mount(self.disk, lambda: True)
        log = SqliteLog(MemoryDatabase(mount, PATH))
        try:
            log.open(create=not self.acked)
        finally:
            if mount.interruption is not None:
                raise mount.interruption
        return log, mount

    def work(self) -> None:
        """Appends, until the process is killed."""
        log, mount = self.start()
        try:
            self._append(log)
        finally:
            if mount.interruption is not None:
                raise mount.interruption

    def _append(self, log: SqliteLog) -> None:
        epoch = log.take_term(1, b"1" * 16, log.controller()).epoch
        for number in range(APPENDS):
            batch = MetadataBatch(b"w" * 16, number + 1, epoch, b"%d" % number)
            assert log.append(batch, number).outcome is EntryOutcome.DONE
            self.acked += 1
        log.close()


def steps_of_all() -> int:
    folder = Folder()
    folder.work()
    return folder.disk.steps


@pytest.mark.parametrize("power", [False, True])
def test_acknowledged_batches_survive_a_stop_at_any_call(power: bool) -> None:
    for stop_at in range(3, steps_of_all()):
        folder = Folder()
        folder.disk.stop_at = stop_at
        with pytest.raises(DiskStopped):
            folder.work()
        if power:
            folder.disk.crash(SeededRandom(stop_at) if stop_at % 2 else None)
        else:
            folder.disk.kill()
        log, _ = folder.start()
        found = [entry.payload for entry in log.read(0).entries]
        assert found == [b"%d" % number for number in range(len(found))]
        assert folder.acked <= len(found) <= folder.acked + 1, stop_at
        log.close()


def test_a_full_disk_is_reported_and_survived() -> None:
    folder = Folder()
    log, _ = folder.start()
    epoch = log.take_term(1, b"1" * 16, log.controller()).epoch
    folder.disk.capacity = folder.disk.used
    batch = MetadataBatch(b"w" * 16, 1, epoch, bytes(10_000))
    with pytest.raises(MetadataUnavailable, match="full"):
        log.append(batch, 0)
    folder.disk.capacity = None
    assert log.append(batch, 0).outcome is EntryOutcome.DONE
    log.close()


def test_a_commit_that_fails_is_not_known_to_be_done() -> None:
    folder = Folder()
    log, _ = folder.start()
    epoch = log.take_term(1, b"1" * 16, log.controller()).epoch
    folder.disk.fail("sync", errno.EIO, suffix="-wal")
    batch = MetadataBatch(b"w" * 16, 1, epoch, b"x")
    assert log.append(batch, 0).outcome is EntryOutcome.UNKNOWN
    log.close()


@pytest.mark.parametrize(
    ("operation", "code", "suffix", "noted"),
    [
        ("write", errno.EIO, "-wal", True),
        ("write", errno.EROFS, "-wal", True),
        ("sync", errno.EIO, "-wal", True),
        ("sync", errno.ENOSPC, "-wal", True),
        ("write", errno.EIO, "-end", True),
        ("write", errno.ENOSPC, "-wal", False),
        ("write", errno.ENOSPC, "-end", False),
    ],
)
def test_a_failure_of_the_device_is_noted_before_the_answer(
    operation: Operation, code: int, suffix: str, noted: bool
) -> None:
    folder = Folder()
    log, _ = folder.start()
    epoch = log.take_term(1, b"1" * 16, log.controller()).epoch
    failures: list[str] = []
    log.on_device_failure = lambda: failures.append(operation)
    folder.disk.fail(operation, code, suffix=suffix)
    with contextlib.suppress(MetadataUnavailable):
        log.append(MetadataBatch(b"w" * 16, 1, epoch, b"x"), 0)
    assert bool(failures) is noted
    log.close()


def test_a_database_that_should_be_there_is_missed() -> None:
    folder = Folder()
    folder.acked = 1
    with pytest.raises(MetadataMissing):
        folder.start()
