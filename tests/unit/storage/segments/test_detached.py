"""Copies of a segment that threads read."""

from __future__ import annotations

import pytest

from lakelog.base.config.log_config import LogConfig
from lakelog.storage.files import INDEX, LOG
from lakelog.storage.log import Log
from lakelog.storage.segments.detached import DetachedSegment
from storage_kit import NOW, Store, append, make_batch, memory_store

CONFIG = LogConfig(index_interval_bytes=100)


def filled() -> tuple[Store, Log]:
    store = memory_store(CONFIG)
    log = store.create()
    for _ in range(10):
        append(log, make_batch(2))
    return store, log


def test_a_rebuilt_index_of_a_copy_changes_no_file() -> None:
    store, log = filled()
    log.roll(NOW)
    segment = log.segments[0]
    store.disk.remove(segment.path(INDEX))
    copy = DetachedSegment(segment, opens=True)
    copy.rebuild_index("it is missing")
    assert len(copy.index.offsets) > 3
    assert not store.disk.exists(segment.path(INDEX)), "the loop writes it, not a thread"
    copy.close()


def test_a_copy_is_the_segment_at_that_time() -> None:
    _, log = filled()
    segment = log.segments.active
    segment.open()
    copy = DetachedSegment(segment)
    size, end = segment.size, segment.next_offset
    append(log, make_batch(2))
    assert (copy.size, copy.next_offset) == (size, end)
    assert copy.handle is segment.handle


def test_a_copy_with_its_own_file_survives_the_eviction_of_the_other() -> None:
    _, log = filled()
    segment = log.segments.active
    copy = DetachedSegment(segment, opens=True)
    mine = copy.open()
    assert mine is copy.open()
    assert mine is not segment.open()
    copy.close()
    assert segment.open().file.read_at(0, 10)
    copy.close()


def test_a_segment_that_retention_removed_is_missing() -> None:
    store, log = filled()
    copy = DetachedSegment(log.segments.active, opens=True)
    store.disk.remove(log.segments.active.path(LOG))
    with pytest.raises(FileNotFoundError):
        copy.open()
