"""One segment: lookups, also with index files that are wrong in the middle, and failed writes."""

from __future__ import annotations

import errno
import struct
from pathlib import Path

import pytest

from doubles.disk import MemoryDisk
from lakelog.base.config.log_config import LogConfig
from lakelog.records.batch import HEADER_SIZE, iter_batches, read_header
from lakelog.runtime.posix import PosixDisk
from lakelog.storage.compaction.records import emptied
from lakelog.storage.files import INDEX, LOG, TIME_INDEX
from lakelog.storage.log import Log
from lakelog.storage.segments.handles import HandleCache
from lakelog.storage.segments.segment import Segment
from lakelog.storage.segments.segment_index import ENTRY_SIZE, TIME_ENTRY_SIZE, SegmentIndex
from storage_kit import (
    NOW,
    Store,
    append,
    append_in_transaction,
    append_marker,
    make_batch,
    memory_store,
    open_files,
    read_batches,
    record_at,
)

DENSE = LogConfig(index_interval_bytes=1)
SIZE = len(make_batch(3))
WRONG = 5
"""The entry of batch 6: the first batch has none."""


def written(store: Store) -> Log:
    """12 batches of 3 records each in a sealed segment, and one in the next."""
    log = store.create()
    for number in range(12):
        append(log, make_batch(3, timestamp=NOW + 10 * number))
    log.roll(NOW)
    append(log, make_batch(3, timestamp=NOW + 1000))
    return store.restart()


def misleading(store: Store, log: Log, *, offset: int = 0, position: int = 0) -> None:
    """Adds to what entry `WRONG` of the oldest segment's index file says; it still rises."""
    path = log.segments[0].path(INDEX)
    file = store.disk.open(path)
    data = file.read_at(WRONG * ENTRY_SIZE, ENTRY_SIZE)
    known_offset, known_position = struct.unpack(">ii", data)
    assert known_position == (WRONG + 1) * SIZE
    file.write_at(
        WRONG * ENTRY_SIZE, struct.pack(">ii", known_offset + offset, known_position + position)
    )
    file.close()


@pytest.mark.parametrize(("offset", "position"), [(0, 7), (0, -7), (2, 0), (-2, 0)])
def test_an_offset_is_found_in_spite_of_a_wrong_entry(offset: int, position: int) -> None:
    store = memory_store(DENSE)
    log = written(store)
    misleading(store, log, offset=offset, position=position)
    for asked in (*range(18, 24), *range(36)):
        assert log.segments[0].position_of(asked) == asked // 3 * SIZE
    assert log.segments[0].indexes.is_trusted
    assert len(read_batches(log)) == 13


def test_a_true_entry_is_enough_to_find_an_offset() -> None:
    log = written(memory_store(DENSE))
    assert log.segments[0].position_of(20) == 6 * SIZE
    assert log.segments[0].entry_before(6 * SIZE + 1) == 6 * SIZE
    assert not log.segments[0].indexes.is_trusted, "nothing is to be rebuilt"


@pytest.mark.parametrize("position", [7, -7])
def test_a_read_ends_with_a_batch_in_spite_of_a_wrong_entry(position: int) -> None:
    store = memory_store(DENSE)
    log = written(store)
    misleading(store, log, position=position)
    segment = log.segments[0]
    assert segment.whole_batches(0, segment.size, 6 * SIZE + 10, SIZE) == 6 * SIZE
    found = log.read(0, 6 * SIZE + 10, end_offset=log.log_end_offset)
    assert found is not None
    assert [header.base_offset for header, _ in iter_batches(found.read())] == list(range(0, 18, 3))
    found.release()


def test_aborted_transactions_are_found_in_spite_of_a_wrong_entry() -> None:
    store = memory_store(DENSE)
    log = store.create()
    for _ in range(6):
        append(log, make_batch(3))
    append_in_transaction(log, (7, 0, 0), 3)
    for _ in range(5):
        append(log, make_batch(3))
    append_marker(log, 7, 0, commit=False)
    log.roll(NOW)
    log = store.restart()
    misleading(store, log, offset=-2)
    assert log.segments[0].end_of_reads(6 * SIZE) >= 18
    found = log.read(0, 7 * SIZE, end_offset=log.log_end_offset)
    assert found is not None
    assert [entry.first_offset for entry in log.aborted_transactions(0, found)] == [18]
    found.release()


def test_the_index_files_of_a_cut_log_lead_to_nothing_above_the_cut() -> None:
    store = memory_store(DENSE)
    log = store.create()
    for number in range(12):
        append(log, make_batch(3, timestamp=NOW + 10 * number))
    log.flush()
    log = store.restart()
    log.truncate_to(18)
    segment = log.segments.active
    files = (store.disk.open(segment.path(suffix)) for suffix in (INDEX, TIME_INDEX, LOG))
    offsets, times, data = (file.read_at(0, file.size()) for file in files)
    index = SegmentIndex.decode(offsets, times)
    assert list(index.offsets) == [5, 8, 11, 14, 17]
    assert max(index.time_offsets) == 17
    assert len(data) == 6 * SIZE


def test_the_greatest_time_of_a_cut_log_is_a_records_in_spite_of_a_wrong_entry() -> None:
    """The time entry before the cut is read by nothing until it has become the last one."""
    store = memory_store(DENSE)
    log = written(store)
    segment = log.segments[0]
    path = segment.path(TIME_INDEX)
    file = store.disk.open(path)
    position = (WRONG - 1) * TIME_ENTRY_SIZE
    time, offset = struct.unpack(">qi", file.read_at(position, TIME_ENTRY_SIZE))
    assert (time, offset) == (NOW + 52, 17)
    file.write_at(position, struct.pack(">qi", time + 5, offset))
    file.close()
    log.truncate_to(18)
    assert (segment.max_timestamp, segment.indexes.max_timestamp_offset) == (NOW + 52, 17)
    found = record_at(log, NOW + 53)
    assert found is None


def test_the_indexes_of_a_sealed_segment_take_the_bytes_of_their_files() -> None:
    store = memory_store(DENSE)
    log = written(store)
    sealed, active = log.segments
    assert sealed.unloadable_bytes == 0, "they are not loaded"
    for segment in log.segments:
        assert segment.position_of(segment.base_offset) == 0
    files = sum(store.disk.size(sealed.path(suffix)) for suffix in (INDEX, TIME_INDEX))
    assert sealed.unloadable_bytes == files == 11 * (ENTRY_SIZE + TIME_ENTRY_SIZE)
    assert active.unloadable_bytes == 0, "appends need them"


def test_a_closed_file_is_opened_to_find_out_if_it_is_resident() -> None:
    log = written(memory_store(DENSE))
    segment = log.segments[0]
    segment.unload()
    assert segment.look_ahead(0, segment.size) == (None, True)
    assert segment.handle is not None


def test_a_new_segment_has_no_open_file(tmp_path: Path) -> None:
    handles = HandleCache(PosixDisk(), 16)
    segment = Segment(handles, tmp_path, 0, LogConfig(), created_ms=NOW).create()
    assert segment.handle is None
    assert open_files(tmp_path) == []


def test_a_read_has_as_many_batches_as_fit_wherever_it_begins() -> None:
    log = memory_store().create()
    for _ in range(12):
        append(log, make_batch(3))
    segment = log.segments.active
    assert not segment.index.positions
    for first in range(9):
        found = segment.whole_batches(first * SIZE, segment.size, 3 * SIZE + 10, None)
        assert found == 3 * SIZE


def test_a_search_starts_at_the_last_entry_at_or_before_its_offset() -> None:
    segment = written(memory_store(DENSE)).segments[0]
    found = [segment.entry_for(offset) for offset in (0, 4, 5, 7, 8, 36)]
    assert found == [0, 0, SIZE, SIZE, 2 * SIZE, 11 * SIZE]


def test_a_batch_may_have_no_records() -> None:
    """A compaction leaves the last batch of a producer, for its sequence."""
    log = memory_store().create()
    batch = emptied(read_header(make_batch(2)))
    segment = log.segments.active
    segment.append(batch, 1, -1)
    following, _ = segment.look_ahead(0, 0)
    assert following == (0, len(batch)) == (0, HEADER_SIZE)
    assert segment.look_ahead(0, len(batch)) == (None, True)


def test_an_empty_segment_is_never_due() -> None:
    """Without timestamps the clock decides, from the first batch on."""
    segment = memory_store().create().segments.active
    assert not segment.is_due(NOW, NOW + 1001, 1000)
    segment.append(make_batch(1), 0, -1)
    segment.first_timestamp = -1
    assert not segment.is_due(NOW, NOW + 1000, 1000)


def test_a_file_is_cut_once_after_a_failed_write_and_never_otherwise() -> None:
    store = memory_store()
    disk = store.disk
    assert isinstance(disk, MemoryDisk)
    segment = store.create().segments.active

    def steps_of_append() -> int:
        before = disk.steps
        segment.append(make_batch(1), segment.next_offset, NOW)
        return disk.steps - before

    assert steps_of_append() == 1
    disk.fail("write", errno.ENOSPC, partial=10)
    with pytest.raises(OSError, match="No space"):
        steps_of_append()
    assert [steps_of_append() for _ in range(2)] == [1, 1], "the failed write has cut it"
    disk.fail("write", errno.ENOSPC, partial=10)
    disk.fail("truncate", errno.EIO)
    with pytest.raises(OSError, match="No space"):
        steps_of_append()
    assert [steps_of_append() for _ in range(2)] == [2, 1]
    assert disk.size(segment.path(LOG)) == segment.size
