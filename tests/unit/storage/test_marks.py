"""The seal of a data folder: which changes by other programs it shows."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from doubles.disk import DiskStopped, MemoryDisk
from lakelog.runtime.posix import PosixDisk
from lakelog.storage.marks import (
    DURABLE_TOPICS,
    FOLDER_SEAL,
    DurableMark,
    DurableTopicsFound,
    FolderSeal,
)
from storage_kit import DATA, ManualClock

SEALED = DATA / "known-logs"


def opened(disk: MemoryDisk | PosixDisk, folder: Path = DATA) -> FolderSeal:
    seal = FolderSeal(folder / FOLDER_SEAL, folder / SEALED.name, disk)
    seal.open(is_expected=False)
    return seal


def used(disk: MemoryDisk | PosixDisk, folder: Path = DATA) -> FolderSeal:
    """Return the seal of a process that has written two checkpoints."""
    disk.make_dirs(folder)
    seal = opened(disk, folder)
    assert seal.is_intact
    assert seal.is_of_stop, "a folder without seal may be Apache Kafka's"
    seal.begin()
    for content in (b"first", b"second"):
        seal.replace(content)
    return seal


def test_it_fits_after_every_step_of_a_process() -> None:
    disk = MemoryDisk(ManualClock())
    used(disk)
    steps = disk.steps
    for step in range(steps):
        for end in (MemoryDisk.kill, MemoryDisk.crash):
            disk = MemoryDisk(ManualClock())
            disk.stop_at = step
            with pytest.raises(DiskStopped):
                used(disk)
            end(disk)
            disk.stop_at = None
            if disk.is_dir(DATA):
                assert opened(disk).is_intact, step


def put_back(folder: Path, copy: Path) -> None:
    shutil.copytree(copy, folder, dirs_exist_ok=True)


def replace_all(folder: Path, copy: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)


def put_back_known_logs(folder: Path, copy: Path) -> None:
    shutil.copy2(copy / SEALED.name, folder / SEALED.name)


def remove_known_logs(folder: Path, copy: Path) -> None:
    (folder / SEALED.name).unlink()


def damage_seal(folder: Path, copy: Path) -> None:
    (folder / FOLDER_SEAL).write_bytes(b"lakelog")


@pytest.mark.parametrize("is_current", [True, False])
@pytest.mark.parametrize(
    "change", [put_back, replace_all, put_back_known_logs, remove_known_logs, damage_seal]
)
def test_a_restore_is_noticed(
    tmp_path: Path, change: Callable[[Path, Path], None], is_current: bool
) -> None:
    disk, folder = PosixDisk(), tmp_path / "data"
    seal = used(disk, folder)
    shutil.copytree(folder, tmp_path / "copy")
    if not is_current:
        seal.replace(b"third")
    change(folder, tmp_path / "copy")
    found = opened(disk, folder)
    assert not found.is_intact
    assert not found.is_of_stop


class CopyingDisk(PosixDisk):
    """A disk whose folder another program copies after a sync."""

    def __init__(self, copied_at: int) -> None:
        super().__init__()
        self._left = copied_at

    def sync_dir(self, path: Path) -> None:
        super().sync_dir(path)
        self._left -= 1
        if not self._left:
            shutil.copytree(path, path.with_name("copy"))


@pytest.mark.parametrize("folder_sync", [1, 2, 3])
def test_a_copy_that_was_made_during_a_checkpoint_is_noticed(
    tmp_path: Path, folder_sync: int
) -> None:
    folder = tmp_path / "data"
    used(PosixDisk(), folder)
    disk = CopyingDisk(folder_sync)
    seal = opened(disk, folder)
    seal.replace(b"third")
    kept = (folder / SEALED.name).open("rb")  # no other file gets its inode
    with kept:
        replace_all(folder, tmp_path / "copy")
        assert not opened(PosixDisk(), folder).is_intact


def test_a_copy_that_precedes_the_first_checkpoint_is_noticed(tmp_path: Path) -> None:
    disk, folder = PosixDisk(), tmp_path / "data"
    disk.make_dirs(folder)
    seal = opened(disk, folder)
    seal.begin()
    shutil.copytree(folder, tmp_path / "copy")
    assert opened(disk, folder).is_intact, "the first start was not complete"
    seal.replace(b"first")
    replace_all(folder, tmp_path / "copy")
    found = FolderSeal(seal.path, seal.sealed, disk)
    found.open(is_expected=True)
    assert not found.is_intact
    assert not found.is_of_stop


def test_the_folder_of_an_older_version_counts_as_unchanged(tmp_path: Path) -> None:
    disk, folder = PosixDisk(), tmp_path / "data"
    used(disk, folder)
    (folder / FOLDER_SEAL).unlink()
    found = opened(disk, folder)
    assert found.is_intact
    assert found.is_of_stop
    found.begin()
    assert opened(disk, folder).is_intact


def test_a_folder_may_be_moved_after_a_clean_stop(tmp_path: Path) -> None:
    disk, folder = PosixDisk(), tmp_path / "data"
    used(disk, folder).stop()
    shutil.copytree(folder, tmp_path / "moved")
    moved = opened(disk, tmp_path / "moved")
    assert moved.is_of_stop
    assert not moved.is_intact
    moved.begin()
    assert opened(disk, tmp_path / "moved").is_intact


def test_older_files_under_the_mark_of_a_clean_stop_are_noticed(tmp_path: Path) -> None:
    disk, folder = PosixDisk(), tmp_path / "data"
    seal = used(disk, folder)
    shutil.copytree(folder, tmp_path / "copy")
    seal.replace(b"third")
    seal.stop()
    put_back_known_logs(folder, tmp_path / "copy")
    assert not opened(disk, folder).is_of_stop
    put_back(folder, tmp_path / "copy")
    assert not opened(disk, folder).is_of_stop


LOCK = DATA / ".lock"
OLD, NEW, ORDERS, PAYMENTS = (bytes([number]) * 16 for number in (1, 2, 3, 4))


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk(ManualClock())
    disk.make_dirs(DATA)
    disk.sync_dir(DATA.parent)
    disk.open(LOCK, create=True)
    return disk


@pytest.fixture
def mark(disk: MemoryDisk) -> DurableMark:
    return DurableMark(DATA, disk, LOCK)


def test_it_survives_a_power_failure(disk: MemoryDisk, mark: DurableMark) -> None:
    assert mark.find() is None
    mark.write([OLD, NEW], [PAYMENTS, ORDERS])
    disk.crash()
    found = DurableMark(DATA, disk, LOCK).find()
    assert found == DurableTopicsFound((OLD, NEW), frozenset({ORDERS, PAYMENTS}))


def test_removed_it_stays_removed(disk: MemoryDisk, mark: DurableMark) -> None:
    mark.remove()
    mark.write([OLD], [ORDERS])
    mark.remove()
    disk.crash()
    assert mark.find() is None


def test_without_topics_it_is_a_promise_for_none(mark: DurableMark) -> None:
    mark.write([OLD], [])
    assert mark.find() == DurableTopicsFound((OLD,), frozenset())


@pytest.mark.parametrize("at", [0, 24, 34, 40, -5])
def test_a_damaged_file_is_not_believed(disk: MemoryDisk, mark: DurableMark, at: int) -> None:
    mark.write([OLD], [ORDERS])
    data = bytearray(disk.read(DATA / DURABLE_TOPICS))
    data[at] ^= 1
    disk.write_atomic(DATA / DURABLE_TOPICS, data)
    assert mark.find() is None


def test_an_error_of_the_device_is_raised(disk: MemoryDisk, mark: DurableMark) -> None:
    disk.fail("sync", errno.EIO, suffix=".lock")
    with pytest.raises(OSError, match="Input/output"):
        mark.write([OLD], [ORDERS])


def test_a_copy_of_the_folder_is_not_believed(tmp_path: Path) -> None:
    folder, copy = tmp_path / "data", tmp_path / "copy"
    folder.mkdir()
    (folder / ".lock").touch()
    mark = DurableMark(folder, PosixDisk(), folder / ".lock")
    mark.write([OLD], [ORDERS])
    assert mark.find() is not None
    shutil.copytree(folder, copy)
    assert DurableMark(copy, PosixDisk(), copy / ".lock").find() is None
