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
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    disk: Disk = PosixDisk() if request.param == "posix" else MemoryDisk(ManualClock())
    folder = tmp_path / "place"
    calls: list[Call] = []
    if request.param == "posix":
        recorder = Recorder(folder, calls.append)
        recorder.install(partial(monkeypatch.setattr, os))
    disk.make_dirs(folder)
    disk.sync_dir(tmp_path)
    return Place(disk, folder, calls)


def test_bytes_come_back_where_they_were_put(place: Place) -> None:
    file = place.disk.open(place.folder / "file", create=True)
    file.write_at(0, b"hello")
    file.write_at(3, memoryview(b"LOW"))
    file.write_at(8, bytearray(b"!"))
    assert file.size() == 9
    assert file.read_at(0, 100) == b"helLOW\0\0!"
    assert file.read_at(4, 2) == b"OW"
    assert file.read_at(9, 5) == b""
    assert file.read_at(50, 5) == b""
    file.close()
    assert place.disk.read(place.folder / "file") == b"helLOW\0\0!"
    assert place.disk.size(place.folder / "file") == 9


def test_truncate_cuts_and_extends(place: Place) -> None:
    file = place.disk.open(place.folder / "file", create=True)
    file.write_at(0, b"abcdef")
    file.truncate(2)
    assert file.read_at(0, 10) == b"ab"
    file.truncate(4)
    assert file.read_at(0, 10) == b"ab\0\0"
    file.sync()
    file.close()


def test_open_makes_a_file_only_when_asked(place: Place) -> None:
    with pytest.raises(FileNotFoundError):
        place.disk.open(place.folder / "file")
    place.disk.open(place.folder / "file", create=True).close()
    file = place.disk.open(place.folder / "file", create=True)
    assert file.path == place.folder / "file"
    file.close()
    with pytest.raises(FileNotFoundError):
        place.disk.open(place.folder / "absent" / "file", create=True)


def test_a_closed_file_refuses_and_may_be_closed_again(place: Place) -> None:
    file = place.disk.open(place.folder / "file", create=True)
    file.close()
    file.close()
    with pytest.raises(OSError):
        file.write_at(0, b"x")
    with pytest.raises(OSError):
        file.read_at(0, 1)


def test_missing_things_are_missing(place: Place) -> None:
    absent = place.folder / "absent"
    for operation in (
        place.disk.read,
        place.disk.size,
        place.disk.modified_ms,
        place.disk.list,
        place.disk.remove,
        place.disk.remove_tree,
        place.disk.sync_dir,
        place.disk.open,
    ):
        with pytest.raises(FileNotFoundError):
            operation(absent)
    with pytest.raises(FileNotFoundError):
        place.disk.rename(absent, place.folder / "other")
    assert not place.disk.exists(absent)
    assert not place.disk.is_dir(absent)


def test_write_atomic_replaces_all(place: Place) -> None:
    path = place.folder / "file"
    place.disk.write_atomic(path, b"a long first content")
    place.disk.write_atomic(path, b"short")
    assert place.disk.read(path) == b"short"
    assert place.disk.list(place.folder) == ["file"]


def test_rename_replaces_a_file_and_keeps_open_ones_alive(place: Place) -> None:
    one, two = place.folder / "one", place.folder / "two"
    file = place.disk.open(one, create=True)
    file.write_at(0, b"1")
    place.disk.write_atomic(two, b"2")
    place.disk.rename(one, two)
    file.write_at(1, b"more")
    assert place.disk.read(two) == b"1more"
    assert not place.disk.exists(one)
    place.disk.remove(two)
    assert file.read_at(0, 10) == b"1more"
    file.close()


def test_folders_are_listed_renamed_and_removed_with_their_contents(place: Place) -> None:
    inner = place.folder / "a" / "b"
    place.disk.make_dirs(inner)
    place.disk.make_dirs(inner)
    place.disk.write_atomic(inner / "z", b"z")
    place.disk.write_atomic(place.folder / "a" / "y", b"y")
    assert place.disk.list(place.folder / "a") == ["b", "y"]
    assert place.disk.is_dir(inner)
    assert not place.disk.is_dir(inner / "z")
    place.disk.rename(place.folder / "a", place.folder / "c")
    place.disk.sync_dir(place.folder)
    assert place.disk.read(place.folder / "c" / "b" / "z") == b"z"
    assert not place.disk.exists(inner)
    place.disk.remove_tree(place.folder / "c")
    assert place.disk.list(place.folder) == []


def test_a_lock_is_held_once(place: Place) -> None:
    path = place.folder / ".lock"
    lock = place.disk.lock(path)
    with pytest.raises(BlockingIOError):
        place.disk.lock(path)
    lock.release()
    place.disk.lock(path).release()
    assert place.disk.exists(path)


def test_one_thread_at_a_time_is_within_a_mutex(place: Place) -> None:
    mutex, other = place.disk.mutex(), place.disk.mutex()
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


def test_reading_ahead_makes_a_range_resident(place: Place) -> None:
    file = place.disk.open(place.folder / "file", create=True)
    file.write_at(0, bytes(10_000))
    assert not place.disk.read_ahead(file, 0, 10_000)
    assert place.disk.is_resident(file, 0, 10_000)
    assert not place.disk.read_ahead(file, 9_000, 4 << 20)
    assert not place.disk.read_ahead(file, 10_000, 1)
    file.close()


def test_dropping_the_cache_loses_nothing(place: Place) -> None:
    """Neither clean pages nor dirty ones."""
    file = place.disk.open(place.folder / "file", create=True)
    file.write_at(0, b"a" * 10_000)
    file.sync()
    place.disk.drop_cached(file)
    assert file.read_at(0, 20_000) == b"a" * 10_000
    file.write_at(9_000, b"b" * 2_000)
    place.disk.drop_cached(file)
    assert file.read_at(0, 20_000) == b"a" * 9_000 + b"b" * 2_000
    file.close()
    place.disk.drop_cached(file)


def test_the_time_of_a_change_can_be_set(place: Place) -> None:
    path = place.folder / "file"
    place.disk.open(path, create=True).close()
    place.disk.set_modified_ms(path, 1_600_000_000_123)
    assert place.disk.modified_ms(path) == 1_600_000_000_123
    with pytest.raises(FileNotFoundError):
        place.disk.set_modified_ms(place.folder / "none", 1)


def test_an_allocated_file_has_its_size(place: Place) -> None:
    path = place.folder / "allocated"
    place.disk.allocate(path, 10_000)
    assert place.disk.size(path) == 10_000
    if isinstance(place.disk, PosixDisk):
        assert path.stat().st_blocks * 512 >= 10_000
        assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_keeps_its_id(place: Place) -> None:
    path = place.folder / "file"
    with pytest.raises(FileNotFoundError):
        place.disk.file_id(path)
    file = place.disk.open(path, create=True)
    found = place.disk.file_id(path)
    file.close()
    place.disk.open(path, create=True).close()
    assert place.disk.file_id(path) == found


def test_the_page_cache_of_a_file_has_one_name_for_all(place: Place) -> None:
    path = place.folder / "file"
    with pytest.raises(FileNotFoundError):
        place.disk.page_cache_id(path)
    file = place.disk.open(path, create=True)
    found = place.disk.page_cache_id(path)
    file.write_at(0, b"x")
    file.close()
    if isinstance(place.disk, MemoryDisk):
        place.disk.kill()
        assert place.disk.page_cache_id(path) == found
        place.disk.sync_dir(place.folder)
        place.disk.crash()
        assert place.disk.page_cache_id(path) != found


# What survives the power


def test_synced_data_under_a_synced_name_is_durable(place: Place) -> None:
    path = place.folder / "file"
    file = place.disk.open(path, create=True)
    file.write_at(0, b"sync", b"ed")
    file.sync()
    file.write_at(6, b", and not")
    assert not place.after_power_failure().exists(path)
    place.disk.sync_dir(place.folder)
    assert place.after_power_failure().read(path) == b"synced"
    file.truncate(3)
    file.sync()
    assert place.after_power_failure().read(path) == b"syn"


def test_write_atomic_is_durable_when_it_returns(place: Place) -> None:
    path = place.folder / "file"
    for content in (b"first", b"second"):
        place.disk.write_atomic(path, content)
        left = place.after_power_failure()
        assert (left.read(path), left.list(place.folder)) == (content, ["file"])


def test_names_are_durable_with_their_folder(place: Place) -> None:
    disk, folder = place.disk, place.folder
    disk.write_atomic(folder / "old", b"x")
    disk.rename(folder / "old", folder / "new")
    disk.make_dirs(folder / "inside")
    assert place.after_power_failure().list(folder) == ["old"]
    disk.sync_dir(folder)
    assert place.after_power_failure().list(folder) == ["inside", "new"]
    disk.remove(folder / "new")
    disk.remove_tree(folder / "inside")
    assert place.after_power_failure().list(folder) == ["inside", "new"]
    disk.sync_dir(folder)
    assert place.after_power_failure().list(folder) == []
