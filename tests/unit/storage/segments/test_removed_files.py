"""Files of segments that have left a log are renamed, and removed when they are due."""

from __future__ import annotations

import errno

import pytest

from doubles.disk import MemoryDisk
from lakelog.storage.log import Log
from storage_kit import NOW, Store, append, make_batch, memory_store


def rolled(store: Store) -> Log:
    log = store.create()
    append(log, make_batch())
    log.roll(NOW)
    return log


def removed_names(store: Store, log: Log) -> list[str]:
    return [name for name in store.disk.list(log.folder) if name.endswith(".deleted")]


def test_a_segment_is_removed_when_it_is_due() -> None:
    store = memory_store()
    log = rolled(store)
    removed = log.segments.removed
    log.advance_log_start(1)
    log.segments.delete_first(NOW + 10)
    assert len(removed) == len(removed_names(store, log)) == 3
    removed.remove_due(NOW + 9)
    assert len(removed) == 3
    removed.remove_due(NOW + 10)
    assert len(removed) == 0
    assert removed_names(store, log) == []


def test_a_restored_file_has_its_name_again() -> None:
    store = memory_store()
    log = rolled(store)
    before = store.disk.list(log.folder)
    log.segments.removed.add(log.segments[0], NOW)
    log.segments.removed.restore(0)
    assert store.disk.list(log.folder) == before
    with pytest.raises(AssertionError):
        log.segments.removed.restore(1)


def test_the_log_is_renamed_last() -> None:
    """A `.log` without index files is still a segment; index files alone are removed at a start."""
    store = memory_store()
    log = rolled(store)
    assert isinstance(store.disk, MemoryDisk)
    store.disk.fail("name", errno.EIO, suffix="0.log")
    with pytest.raises(OSError, match="Input/output"):
        log.segments.removed.add(log.segments[0], NOW)
    assert sorted(removed_names(store, log)) == [
        f"{0:020d}.index.deleted",
        f"{0:020d}.timeindex.deleted",
    ]
