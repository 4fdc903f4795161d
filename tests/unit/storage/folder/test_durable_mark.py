"""The mark of topics that a power failure leaves complete."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from doubles.disk import MemoryDisk
from lakelog.runtime.posix import PosixDisk
from lakelog.storage.folder.durable_mark import DURABLE_TOPICS, DurableMark, DurableTopicsFound
from storage_kit import DATA, ManualClock

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
