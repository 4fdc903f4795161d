"""The indexes of a segment are loaded if they agree with the log, and otherwise rebuilt from it."""

from __future__ import annotations

import struct

import pytest

from lakelog.base.config.log_config import LogConfig
from lakelog.records.batch import patch_offset_and_epoch, read_header
from lakelog.storage.errors import CorruptLog
from lakelog.storage.files import INDEX, LOG, TIME_INDEX
from lakelog.storage.log import Log
from lakelog.storage.preparation import DetachedSegment
from lakelog.storage.segments.segment import Segment
from lakelog.storage.segments.segment_index import ENTRY_SIZE, TIME_ENTRY_SIZE
from storage_kit import DATA, NOW, Store, append, make_batch, memory_store

DENSE = LogConfig(index_interval_bytes=1)
SIZE = len(make_batch(3))


def written(store: Store) -> Log:
    """12 batches of 3 records each in a sealed segment, and one in the next."""
    log = store.create()
    for number in range(12):
        append(log, make_batch(3, timestamp=NOW + 10 * number))
    log.roll(NOW)
    append(log, make_batch(3, timestamp=NOW + 1000))
    return store.restart()


@pytest.mark.parametrize("suffix", [INDEX, TIME_INDEX])
def test_an_entry_that_a_file_lost_is_there_after_loading(suffix: str) -> None:
    store = memory_store(DENSE)
    segment = written(store).segments[0]
    size = store.disk.size(segment.path(suffix))
    file = store.disk.open(segment.path(suffix))
    file.truncate(size - (ENTRY_SIZE if suffix == INDEX else TIME_ENTRY_SIZE))
    file.close()
    index = segment.index
    assert (len(index.offsets), len(index.times)) == (11, 11)
    assert segment.indexes.is_trusted == (suffix == TIME_INDEX)


@pytest.mark.parametrize("kept", [0, 1, 5])
def test_times_that_an_active_segment_lost_are_there_after_loading(kept: int) -> None:
    store = memory_store(DENSE)
    log = store.create()
    for number in range(7):
        append(log, make_batch(3, timestamp=NOW + 10 * number))
    store.directory.close()
    file = store.disk.open(log.segments.active.path(TIME_INDEX))
    times = file.read_at(0, file.size())
    file.truncate(kept * TIME_ENTRY_SIZE)
    file.close()
    assert len(store.start().logs["topic", 0].segments.active.index.times) == 6
    store.directory.close()
    assert store.disk.read(log.segments.active.path(TIME_INDEX)) == times


def test_the_indexes_of_a_copy_are_adopted_with_the_batches_that_followed() -> None:
    store = memory_store(DENSE)
    log = store.create()
    for number in range(6):
        append(log, make_batch(3, timestamp=NOW + number))
    segment = log.segments.active
    copy = DetachedSegment(segment, opens=True)
    append(log, make_batch(3, timestamp=NOW + 100))
    assert list(copy.index.offsets) == [5, 8, 11, 14, 17]
    segment.apply(copy)
    copy.close()
    assert list(segment.index.offsets) == [5, 8, 11, 14, 17, 20]
    assert segment.max_timestamp == NOW + 102


def test_an_index_that_is_distrusted_is_rebuilt_when_it_is_loaded_again() -> None:
    segment = written(memory_store(DENSE)).segments[0]
    assert not segment.index.trusted
    segment.distrust_index()
    assert segment.indexes.loaded is None
    assert segment.index.trusted


def test_an_index_that_could_not_be_made_is_not_tried_again() -> None:
    segment = written(memory_store(DENSE)).segments[0]
    segment.indexes.error = CorruptLog(segment.path(LOG), 5, "a test wants it")
    with pytest.raises(CorruptLog, match="a test wants it"):
        _ = segment.index


def test_a_start_rebuilds_an_index_whose_last_entry_names_another_batch() -> None:
    """Offset 0 as well, which the first batch alone can have."""
    for offset in (0, 5):
        store = memory_store(DENSE)
        log = store.create()
        for _ in range(12):
            append(log, make_batch(1))
        store.directory.close()
        file = store.disk.open(log.segments.active.path(INDEX))
        file.write_at(file.size() - ENTRY_SIZE, struct.pack(">i", offset))
        file.close()
        store.start()
        assert store.log.log_end_offset == 12
        assert store.log.segments.active.indexes.is_trusted


def test_no_index_is_made_for_a_sealed_segment_that_does_not_reach_the_next() -> None:
    store = memory_store(DENSE)
    log = written(store)
    segment = log.segments[0]
    assert segment.position_of(0) == 0
    file = store.disk.open(segment.path(LOG))
    file.truncate(11 * SIZE)
    file.close()
    segment.size = 11 * SIZE
    with pytest.raises(CorruptLog, match="ends at offset 33, the next segment begins at 36"):
        segment.rebuild_index("it disagrees with the log")
    assert segment.next_offset == 36
    assert segment.indexes.loaded is None


def test_an_offset_must_fit_an_index_entry_relative_to_the_base_offset() -> None:
    store = memory_store()
    base, last = 1 << 40, (1 << 31) - 1
    segment = Segment(store.create().segments.handles, DATA, base, LogConfig(), created_ms=NOW)
    segment.create()
    batch = make_batch(1)
    patch_offset_and_epoch(batch, 0, base + last, 0)
    segment.note_header(0, read_header(batch))
    assert segment.next_offset == base + last + 1
    patch_offset_and_epoch(batch, 0, base + last + 1, 0)
    with pytest.raises(CorruptLog, match=f"offset {base + last + 1} is impossible"):
        segment.note_header(len(batch), read_header(batch))


def test_the_greatest_timestamp_comes_from_loaded_indexes() -> None:
    store = memory_store(DENSE)
    log = store.create()
    for number in range(12):
        append(log, make_batch(3, timestamp=NOW - 10 * number))
    log.roll(NOW)
    segment = store.restart().segments[0]
    assert not segment.knows_greatest(), "the newest record came first"
    assert segment.index.times
    assert segment.knows_greatest()
    assert segment.max_timestamp == NOW + 2
