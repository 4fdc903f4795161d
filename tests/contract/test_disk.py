"""What every disk promises, whichever it is (`lakelog.runtime.api.Disk`)."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from doubles.disk import MemoryDisk
from lakelog.runtime.api import Disk
from lakelog.runtime.posix import PosixDisk
from recorded_disk import Call, Recorder, after_power_failure
from storage_kit import ManualClock


@dataclass
class Place:
    disk: Disk
    folder: Path
    calls: list[Call]
    """Calls of the disk to the operating system; empty for a disk in memory."""

    def after_power_failure(self) -> MemoryDisk:
        if isinstance(self.disk, MemoryDisk):
            return self.disk.copy_after_crash()
        return after_power_failure(self.folder, self.calls)


@pytest.fixture(params=["posix", "memory"])
def tested(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Place:
    disk: Disk = PosixDisk() if request.param == "posix" else MemoryDisk(ManualClock())
    folder = tmp_path / "place"
    calls: list[Call] = []
    if request.param == "posix":
        recorder = Recorder(folder, calls.append)
        recorder.install(partial(monkeypatch.setattr, os))
    disk.make_dirs(folder)
    disk.sync_dir(tmp_path)
    return Place(disk, folder, calls)


def test_bytes_come_back_where_they_were_put(tested: Place) -> None:
    file = tested.disk.open(tested.folder / "file", create=True)
    file.write_at(0, b"hello")
    file.write_at(3, memoryview(b"LOW"))
    file.write_at(8, bytearray(b"!"))
    assert file.size() == 9
    assert file.read_at(0, 100) == b"helLOW\0\0!"
    assert file.read_at(4, 2) == b"OW"
    assert file.read_at(9, 5) == b""
    assert file.read_at(50, 5) == b""
    file.close()
    assert tested.disk.read(tested.folder / "file") == b"helLOW\0\0!"
    assert tested.disk.size(tested.folder / "file") == 9


def test_truncate_cuts_and_extends(tested: Place) -> None:
    file = tested.disk.open(tested.folder / "file", create=True)
    file.write_at(0, b"abcdef")
    file.truncate(2)
    assert file.read_at(0, 10) == b"ab"
    file.truncate(4)
    assert file.read_at(0, 10) == b"ab\0\0"
    file.sync()
    file.close()


def test_open_makes_a_file_only_when_asked(tested: Place) -> None:
    with pytest.raises(FileNotFoundError):
        tested.disk.open(tested.folder / "file")
    tested.disk.open(tested.folder / "file", create=True).close()
    file = tested.disk.open(tested.folder / "file", create=True)
    assert file.path == tested.folder / "file"
    file.close()
    with pytest.raises(FileNotFoundError):
        tested.disk.open(tested.folder / "absent" / "file", create=True)


def test_a_closed_file_refuses_and_may_be_closed_again(tested: Place) -> None:
    file = tested.disk.open(tested.folder / "file", create=True)
    file.close()
    file.close()
    with pytest.raises(OSError):
        file.write_at(0, b"x")
    with pytest.raises(OSError):
        file.read_at(0, 1)


def test_missing_things_are_missing(tested: Place) -> None:
    absent = tested.folder / "absent"
    for operation in (
        tested.disk.read,
        tested.disk.size,
        tested.disk.modified_ms,
        tested.disk.list,
        tested.disk.remove,
        tested.disk.remove_tree,
        tested.disk.sync_dir,
        tested.disk.open,
    ):
        with pytest.raises(FileNotFoundError):
            operation(absent)
    with pytest.raises(FileNotFoundError):
        tested.disk.rename(absent, tested.folder / "other")
    assert not tested.disk.exists(absent)
    assert not tested.disk.is_dir(absent)


def test_write_atomic_replaces_all(tested: Place) -> None:
    path = tested.folder / "file"
    tested.disk.write_atomic(path, b"a long first content")
    tested.disk.write_atomic(path, b"short")
    assert tested.disk.read(path) == b"short"
    assert tested.disk.list(tested.folder) == ["file"]


def test_rename_replaces_a_file_and_keeps_open_ones_alive(tested: Place) -> None:
    one, two = tested.folder / "one", tested.folder / "two"
    file = tested.disk.open(one, create=True)
    file.write_at(0, b"1")
    tested.disk.write_atomic(two, b"2")
    tested.disk.rename(one, two)
    file.write_at(1, b"more")
    assert tested.disk.read(two) == b"1more"
    assert not tested.disk.exists(one)
    tested.disk.remove(two)
    assert file.read_at(0, 10) == b"1more"
    file.close()


def test_folders_are_listed_renamed_and_removed_with_their_contents(tested: Place) -> None:
    inner = tested.folder / "a" / "b"
    tested.disk.make_dirs(inner)
    tested.disk.make_dirs(inner)
    tested.disk.write_atomic(inner / "z", b"z")
    tested.disk.write_atomic(tested.folder / "a" / "y", b"y")
    assert tested.disk.list(tested.folder / "a") == ["b", "y"]
    assert tested.disk.is_dir(inner)
    assert not tested.disk.is_dir(inner / "z")
    tested.disk.rename(tested.folder / "a", tested.folder / "c")
    tested.disk.sync_dir(tested.folder)
    assert tested.disk.read(tested.folder / "c" / "b" / "z") == b"z"
    assert not tested.disk.exists(inner)
    tested.disk.remove_tree(tested.folder / "c")
    assert tested.disk.list(tested.folder) == []


def test_a_lock_is_held_once(tested: Place) -> None:
    path = tested.folder / ".lock"
    lock = tested.disk.lock(path)
    with pytest.raises(BlockingIOError):
        tested.disk.lock(path)
    lock.release()
    tested.disk.lock(path).release()
    assert tested.disk.exists(path)


def test_one_thread_at_a_time_is_within_a_mutex(tested: Place) -> None:
    mutex, other = tested.disk.mutex(), tested.disk.mutex()
    begun, entered = threading.Event(), threading.Event()

    def enter() -> None:
        with other:
            begun.set()
        with mutex:
            entered.set()

    thread = threading.Thread(target=enter)
    with mutex:
        thread.start()
        assert begun.wait(60)
        assert not entered.is_set()
    thread.join()
    assert entered.is_set()


def test_reading_ahead_makes_a_range_resident(tested: Place) -> None:
    file = tested.disk.open(tested.folder / "file", create=True)
    file.write_at(0, bytes(10_000))
    assert not tested.disk.read_ahead(file, 0, 10_000)
    assert tested.disk.is_resident(file, 0, 10_000)
    assert not tested.disk.read_ahead(file, 9_000, 4 << 20)
    assert not tested.disk.read_ahead(file, 10_000, 1)
    file.close()


def test_dropping_the_cache_loses_nothing(tested: Place) -> None:
    """Neither clean pages nor dirty ones."""
    file = tested.disk.open(tested.folder / "file", create=True)
    file.write_at(0, b"a" * 10_000)
    file.sync()
    tested.disk.drop_cached(file)
    assert file.read_at(0, 20_000) == b"a" * 10_000
    file.write_at(9_000, b"b" * 2_000)
    tested.disk.drop_cached(file)
    assert file.read_at(0, 20_000) == b"a" * 9_000 + b"b" * 2_000
    file.close()
    tested.disk.drop_cached(file)


def test_the_time_of_a_change_can_be_set(tested: Place) -> None:
    path = tested.folder / "file"
    tested.disk.open(path, create=True).close()
    tested.disk.set_modified_ms(path, 1_600_000_000_123)
    assert tested.disk.modified_ms(path) == 1_600_000_000_123
    with pytest.raises(FileNotFoundError):
        tested.disk.set_modified_ms(tested.folder / "none", 1)


def test_an_allocated_file_has_its_size(tested: Place) -> None:
    path = tested.folder / "allocated"
    tested.disk.allocate(path, 10_000)
    assert tested.disk.size(path) == 10_000
    if isinstance(tested.disk, PosixDisk):
        assert path.stat().st_blocks * 512 >= 10_000
        assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_keeps_its_id(tested: Place) -> None:
    path = tested.folder / "file"
    with pytest.raises(FileNotFoundError):
        tested.disk.file_id(path)
    file = tested.disk.open(path, create=True)
    found = tested.disk.file_id(path)
    file.close()
    tested.disk.open(path, create=True).close()
    assert tested.disk.file_id(path) == found


def test_the_page_cache_of_a_file_has_one_name_for_all(tested: Place) -> None:
    path = tested.folder / "file"
    with pytest.raises(FileNotFoundError):
        tested.disk.page_cache_id(path)
    file = tested.disk.open(path, create=True)
    found = tested.disk.page_cache_id(path)
    file.write_at(0, b"x")
    file.close()
    if isinstance(tested.disk, MemoryDisk):
        tested.disk.kill()
        assert tested.disk.page_cache_id(path) == found
        tested.disk.sync_dir(tested.folder)
        tested.disk.crash()
        assert tested.disk.page_cache_id(path) != found


# What survives the power


def test_synced_data_under_a_synced_name_is_durable(tested: Place) -> None:
    path = tested.folder / "file"
    file = tested.disk.open(path, create=True)
    file.write_at(0, b"sync", b"ed")
    file.sync()
    file.write_at(6, b", and not")
    assert not tested.after_power_failure().exists(path)
    tested.disk.sync_dir(tested.folder)
    assert tested.after_power_failure().read(path) == b"synced"
    file.truncate(3)
    file.sync()
    assert tested.after_power_failure().read(path) == b"syn"


def test_write_atomic_is_durable_when_it_returns(tested: Place) -> None:
    path = tested.folder / "file"
    for content in (b"first", b"second"):
        tested.disk.write_atomic(path, content)
        left = tested.after_power_failure()
        assert (left.read(path), left.list(tested.folder)) == (content, ["file"])


def test_names_are_durable_with_their_folder(tested: Place) -> None:
    disk, folder = tested.disk, tested.folder
    disk.write_atomic(folder / "old", b"x")
    disk.rename(folder / "old", folder / "new")
    disk.make_dirs(folder / "inside")
    assert tested.after_power_failure().list(folder) == ["old"]
    disk.sync_dir(folder)
    assert tested.after_power_failure().list(folder) == ["inside", "new"]
    disk.remove(folder / "new")
    disk.remove_tree(folder / "inside")
    assert tested.after_power_failure().list(folder) == ["inside", "new"]
    disk.sync_dir(folder)
    assert tested.after_power_failure().list(folder) == []
