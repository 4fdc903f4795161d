"""Directories of deleted logs are removed when they are due, once."""

from __future__ import annotations

from pathlib import Path

from doubles.disk import MemoryDisk
from lakelog.storage.folder.deletions import Deletions
from storage_kit import ManualClock


def test_a_directory_is_due_once() -> None:
    deletions = Deletions(MemoryDisk(ManualClock()))
    deletions.add(Path("/data/a"), 5)
    deletions.add(Path("/data/b"))
    assert deletions.due(4) == [Path("/data/b")]
    assert deletions.due(4) == []
    assert deletions.due(5) == [Path("/data/a")]


def test_a_purge_removes_due_directories() -> None:
    disk = MemoryDisk(ManualClock())
    for name in ("a", "b"):
        disk.make_dirs(Path("/data") / name)
    deletions = Deletions(disk)
    deletions.add(Path("/data/a"), 1)
    deletions.add(Path("/data/b"), 2)
    assert deletions.purge(1) == 1
    assert disk.list(Path("/data")) == ["b"]
