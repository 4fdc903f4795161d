"""Steps on a disk: missing files, and replacements that a kill does not tear."""

from __future__ import annotations

from doubles.disk import MemoryDisk
from lakelog.storage.files import is_blank, read_if_exists, remove_if_exists, replace, write_aside
from storage_kit import DATA, ManualClock, append, make_batch, memory_store

PATH = DATA / "file"


def new_disk() -> MemoryDisk:
    disk = MemoryDisk(ManualClock())
    disk.make_dirs(DATA)
    return disk


def test_a_missing_file_is_none_and_need_not_be_removed() -> None:
    disk = new_disk()
    assert read_if_exists(disk, PATH) is None
    remove_if_exists(disk, PATH)
    replace(disk, PATH, b"content")
    assert read_if_exists(disk, PATH) == b"content"
    remove_if_exists(disk, PATH)
    assert not disk.exists(PATH)


def test_a_file_written_aside_replaces_nothing_yet() -> None:
    disk = new_disk()
    replace(disk, PATH, b"a long content")
    aside = write_aside(disk, PATH, b"a longer content")
    assert write_aside(disk, PATH, b"new") == aside
    assert disk.read(PATH) == b"a long content"
    disk.rename(aside, PATH)
    assert disk.read(PATH) == b"new"


def test_a_log_is_blank_until_something_is_written() -> None:
    store = memory_store()
    log = store.create()
    assert is_blank(store.disk, log.folder)
    append(log, make_batch())
    assert not is_blank(store.disk, log.folder)
