"""Steps on a disk: missing files, and replacements that a kill does not tear."""

from __future__ import annotations

import pytest

from doubles.disk import MemoryDisk
from lakelog.storage.files import (
    DELETE_DIR,
    INDEX,
    dir_name,
    file_name,
    is_blank,
    offset_of,
    parse_dir_name,
    read_if_exists,
    remove_if_exists,
    replace,
    retired_dir_name,
    write_aside,
)
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


def test_a_file_is_named_for_its_offset() -> None:
    assert file_name(42, INDEX) == "00000000000000000042.index"
    assert offset_of("00000000000000000042.index") == 42
    assert offset_of("00000000000000000042.log.deleted") == 42
    assert offset_of("leader-epoch-checkpoint") is None
    assert offset_of("42.log") is None


@pytest.mark.parametrize("topic", ["a", "a-b", "a-1", "a.b_c"])
def test_a_directory_names_topic_and_partition(topic: str) -> None:
    assert parse_dir_name(dir_name(topic, 7)) == (topic, 7)


@pytest.mark.parametrize("name", ["a", "-1", "a-", "a-x", "a-1-delete", "a--"])
def test_other_directories_are_no_logs(name: str) -> None:
    assert parse_dir_name(name) is None


def test_the_name_of_a_deleted_log_is_cut_to_what_file_systems_allow() -> None:
    name = retired_dir_name("t" * 249, 12, "0" * 32, DELETE_DIR)
    assert len(name) == 255
    assert name.endswith(f"-12.{'0' * 32}-delete")
    assert parse_dir_name(name) is None
