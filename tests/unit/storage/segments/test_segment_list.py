"""Invariants of a log's segments, and their state after a failure of the disk."""

from __future__ import annotations

import errno

import pytest

from counted_work import lines_run
from doubles.disk import MemoryDisk
from lakelog.base.config.log_config import LogConfig
from lakelog.storage.files import DELETED, LOG
from lakelog.storage.log import Log
from lakelog.storage.segments.segment import Segment
from lakelog.storage.segments.segment_list import KnownBatches, SegmentList
from storage_kit import NOW, ManualClock, Store, append, make_batch, memory_store, read_batches

CONFIG = LogConfig()


def filled(store: Store, segments: int = 4) -> Log:
    """A log with two records in each segment."""
    log = store.create()
    for number in range(segments):
        if number:
            log.roll(NOW)
        append(log, make_batch(2))
    return log


def merged(log: Log, first: int, end: int) -> Segment:
    """A segment for the place of others, without files."""
    segments = log.segments
    new = Segment(segments.handles, log.folder, segments[first].base_offset, CONFIG, created_ms=NOW)
    new.sealed, new.next_offset = True, segments[end].base_offset
    return new


def names(store: Store, log: Log, suffix: str) -> list[str]:
    return [name for name in store.disk.list(log.folder) if name.endswith(suffix)]


def test_an_offset_belongs_to_the_last_segment_that_begins_before_it() -> None:
    segments = filled(memory_store()).segments
    assert [segments.number_of(offset) for offset in range(9)] == [0, 0, 1, 1, 2, 2, 3, 3, 3]
    assert segments.number_of(-1) == 0
    assert [segments.count_from(offset) for offset in (-1, 0, 1, 2, 7)] == [0, 1, 1, 2, 4]


def test_only_the_last_segment_grows() -> None:
    log = filled(memory_store())
    assert [segment.sealed for segment in log.segments] == [True, True, True, False]
    assert log.segments.active is log.segments[-1]
    log.segments[1].sealed = False
    with pytest.raises(AssertionError, match="only the last"):
        SegmentList(log.folder, log.segments.handles, log.segments[:])


def test_segments_have_to_rise() -> None:
    log = filled(memory_store())
    with pytest.raises(AssertionError):
        SegmentList(log.folder, log.segments.handles, log.segments[::-1])


def test_the_active_segment_is_never_deleted() -> None:
    log = filled(memory_store(), segments=1)
    with pytest.raises(AssertionError, match="the active segment stays"):
        log.segments.delete_first(NOW)


def test_a_segment_that_cannot_begin_leaves_no_file_and_the_old_one_continues() -> None:
    store = memory_store()
    log = filled(store, segments=1)
    assert isinstance(store.disk, MemoryDisk)
    store.disk.fail("write", errno.ENOSPC, suffix=".snapshot.tmp")
    with pytest.raises(OSError, match="No space"):
        log.roll(NOW)
    store.disk.forget_faults()
    assert names(store, log, LOG) == ["00000000000000000000.log"]
    assert not log.segments.active.sealed
    append(log, make_batch(2))
    assert len(read_batches(store.killed())) == 2


def test_a_replacement_without_space_leaves_all_as_it_was() -> None:
    store = memory_store()
    log = filled(store)
    before, files = list(log.segments), names(store, log, LOG)
    assert isinstance(store.disk, MemoryDisk)
    store.disk.fail("name", errno.ENOSPC, suffix="02.log")
    with pytest.raises(OSError, match="No space"):
        log.replace_segments(before[0:2], merged(log, 0, 2), NOW)
    store.disk.forget_faults()
    assert list(log.segments) == before
    assert names(store, log, LOG) == files
    assert len(log.segments.removed) == 0
    assert len(read_batches(log)) == 4


def test_replaced_files_stay_until_they_are_due() -> None:
    store = memory_store()
    log = filled(store)
    new = merged(log, 0, 2)
    log.replace_segments(log.segments[0:2], new, NOW + 10)
    assert [segment.base_offset for segment in log.segments] == [0, 4, 6]
    assert log.segments[0] is new
    log.segments.removed.remove_due(NOW + 9)
    assert len(names(store, log, LOG + DELETED)) == 2
    log.segments.removed.remove_due(NOW + 10)
    assert names(store, log, DELETED) == []


def test_the_active_segment_is_never_replaced() -> None:
    log = filled(memory_store())
    with pytest.raises(AssertionError):
        log.segments.replace(log.segments[2:], merged(log, 2, 3), NOW)


def test_a_cut_forgets_earlier_places_and_jobs() -> None:
    log = filled(memory_store())
    generation = log.segments.generation
    assert log.segments.known_batches.find(6) is not None
    log.truncate_to(4)
    assert log.segments.known_batches.find(6) is None
    assert log.segments.generation > generation
    assert log.segments.active.next_offset == log.log_end_offset == 4


def test_the_next_flush_makes_the_file_durable_that_a_log_begins_again_with() -> None:
    disk = MemoryDisk(ManualClock(), names_in_order=False)
    log = filled(Store(disk))
    log.flush()
    log.segments.restart_at(log.log_end_offset, CONFIG)
    path = log.segments.active.path(LOG)
    assert not disk.copy_after_crash().exists(path)
    log.flush()
    assert disk.copy_after_crash().exists(path)


def test_a_batch_is_forgotten_however_long_ago_it_was_noted() -> None:
    log = memory_store().create()
    append(log, make_batch())
    known = KnownBatches()
    for offset in range(200):
        known.note(offset, (log.segments.active, offset, None))
    for offset in (150, 199):
        assert known.find(offset) is not None
        known.forget(offset)
        assert known.find(offset) is None
    older = [offset for offset in range(128) if known.find(offset) is not None]
    assert older, "notes of the generation before are kept"
    known.forget(older[0])
    assert known.find(older[0]) is None


def test_a_reader_in_sequence_does_not_search_the_index() -> None:
    log = memory_store(LogConfig(index_interval_bytes=1 << 20)).create()
    for _ in range(1000):
        append(log, make_batch(size=100))
    first = read_lines(log, 500)
    following = read_lines(log, 501)
    assert following < first / 10, "the batch after the last one read is known"


def read_lines(log: Log, offset: int) -> int:
    def read() -> None:
        found = log.read(offset, 1, end_offset=log.log_end_offset)
        assert found is not None
        found.release()

    return lines_run(read)


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
