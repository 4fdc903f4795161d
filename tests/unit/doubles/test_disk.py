"""The disk in memory loses unsynced data in a crash and fails on request."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from doubles.disk import DiskStopped, MemoryDisk
from doubles.randomness import SeededRandom
from storage_kit import ManualClock

ROOT = Path("/")
FILE = ROOT / "file"


def make() -> MemoryDisk:
    return MemoryDisk(ManualClock())


def test_a_crash_keeps_synced_data_under_synced_names() -> None:
    disk = make()
    file = disk.open(FILE, create=True)
    file.write_at(0, b"kept")
    file.sync()
    file.write_at(4, b"lost")
    disk.sync_dir(ROOT)
    disk.open(ROOT / "other", create=True).sync()
    disk.crash()
    assert disk.read(FILE) == b"kept"
    assert disk.list(ROOT) == ["file"]
    with pytest.raises(OSError):
        file.read_at(0, 1)


def test_a_rename_is_undone_unless_its_folder_was_synced() -> None:
    disk = make()
    disk.write_atomic(FILE, b"x")
    disk.rename(FILE, ROOT / "new")
    disk.crash()
    assert disk.list(ROOT) == ["file"]
    disk.rename(FILE, ROOT / "new")
    disk.sync_dir(ROOT)
    disk.crash()
    assert disk.list(ROOT) == ["new"]


def test_the_sync_of_a_folder_may_leave_the_names_of_others() -> None:
    disk = MemoryDisk(ManualClock(), names_in_order=False)
    disk.make_dirs(ROOT / "a")
    disk.make_dirs(ROOT / "b")
    disk.sync_dir(ROOT)
    disk.open(ROOT / "a" / "lost", create=True)
    disk.open(ROOT / "b" / "kept", create=True)
    disk.make_dirs(ROOT / "c")
    disk.open(ROOT / "c" / "without a folder", create=True)
    disk.sync_dir(ROOT / "b")
    disk.sync_dir(ROOT / "c")
    disk.crash()
    assert disk.list(ROOT) == ["a", "b"]
    assert (disk.list(ROOT / "a"), disk.list(ROOT / "b")) == ([], ["kept"])


def test_a_kill_keeps_everything_but_locks_and_open_files() -> None:
    disk = make()
    file = disk.open(FILE, create=True)
    file.write_at(0, b"kept")
    disk.lock(ROOT / "lock")
    disk.kill()
    assert disk.read(FILE) == b"kept"
    disk.lock(ROOT / "lock")


def test_randomness_tears_writes_that_were_not_synced() -> None:
    outcomes = set()
    for seed in range(40):
        disk = make()
        disk.write_atomic(FILE, b"old")
        disk.open(FILE).write_at(3, b"n" * 1024)
        disk.crash(SeededRandom(seed))
        content = disk.read(FILE)
        assert content.startswith(b"old")
        outcomes.add((len(content), content.count(b"n")))
    assert {(3, 0), (3 + 512, 512), (3 + 1024, 1024), (3 + 1024, 0)} <= outcomes


def test_a_full_disk_takes_what_fits() -> None:
    disk = MemoryDisk(ManualClock(), capacity=10)
    file = disk.open(FILE, create=True)
    file.write_at(0, b"12345678")
    with pytest.raises(OSError) as failure:
        file.write_at(8, b"9abcdef")
    assert failure.value.errno == errno.ENOSPC
    assert file.size() == 10
    file.truncate(8)
    file.write_at(8, b"9a")
    file.write_at(0, b"overwriting is free"[:10])


def test_faults_are_taken_once_and_in_their_place() -> None:
    disk = make()
    disk.fail("write", errno.EIO, suffix=".log", skip=1, partial=2)
    disk.fail("sync", errno.EIO)
    other = disk.open(FILE, create=True)
    log = disk.open(ROOT / "a.log", create=True)
    other.write_at(0, b"fine")
    log.write_at(0, b"fine")
    with pytest.raises(OSError):
        log.write_at(4, b"half")
    assert disk.read(ROOT / "a.log") == b"fineha"
    with pytest.raises(OSError):
        log.sync()
    log.sync()


def test_the_process_stops_at_a_step_and_stays_stopped() -> None:
    disk = make()
    disk.stop_at = 2
    file = disk.open(FILE, create=True)
    file.write_at(0, b"one")
    for _ in range(2):
        with pytest.raises(DiskStopped):
            file.write_at(3, b"two")
    disk.kill()
    assert disk.read(FILE) == b"one"


def test_what_cannot_be_read_is_not_resident() -> None:
    disk = make()
    file = disk.open(FILE, create=True)
    file.write_at(0, b"here")
    disk.fail("read", errno.EIO)
    assert disk.read_resident(file, 0, 4) is None
    assert disk.read_resident(file, 0, 4) == b"here"
    disk.fail("read", errno.EIO)
    disk.forget_faults()
    assert disk.read(FILE) == b"here"


def test_a_flipped_bit_is_on_the_device_too() -> None:
    disk = make()
    file = disk.open(FILE, create=True)
    file.write_at(0, b"\0\0")
    disk.write_back()
    file.write_at(2, b"\0")
    disk.flip(FILE, 9)
    assert disk.read(FILE) == b"\0\2\0"
    disk.crash()
    assert disk.read(FILE) == b"\0\2"
