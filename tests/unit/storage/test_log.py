"""Appending and reading, on a real disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakelog.base.config.log_config import LogConfig
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.records.batch import iter_batches
from lakelog.runtime.posix import PosixDisk
from lakelog.storage.epochs import EpochCache
from lakelog.storage.errors import CorruptLog
from lakelog.storage.files import INDEX, TIME_INDEX
from lakelog.storage.log import Log
from lakelog.storage.producers.snapshots import ProducerSnapshots
from lakelog.storage.producers.state import ProducerStateTable
from lakelog.storage.segments.handles import HandleCache
from lakelog.storage.segments.scan import LAST_BYTES_MAX
from lakelog.storage.segments.segment import Segment
from lakelog.storage.segments.segment_index import ENTRY_SIZE, TIME_ENTRY_SIZE
from lakelog.storage.segments.segment_list import SegmentList
from storage_kit import NOW, Store, append, make_batch, memory_store, record_at


def make_log(folder: Path, config: LogConfig | None = None, *, max_open: int = 8) -> Log:
    config = config or LogConfig()
    handles = HandleCache(PosixDisk(), max_open)
    segment = Segment(handles, folder, 0, config, created_ms=NOW).create()
    return Log(
        *("topic", 0, bytes(16), config),
        SegmentList(folder, handles, [segment]),
        ProducerStateTable(),
        ProducerSnapshots(handles.disk, folder),
        EpochCache(),
        random_below=lambda end: 0,
    )


def read_all(log: Log, offset: int, max_bytes: int = 1 << 20) -> list[tuple[int, int]]:
    found = log.read(offset, max_bytes, end_offset=log.log_end_offset)
    if found is None:
        return []
    try:
        data = found.read()
    finally:
        found.release()
    ranges = [(header.base_offset, header.last_offset) for header, _ in iter_batches(data)]
    assert sum(header.size for header, _ in iter_batches(data)) == len(data)
    return ranges


def test_offsets_go_on_and_every_offset_finds_its_batch(tmp_path: Path) -> None:
    log = make_log(tmp_path, LogConfig(index_interval_bytes=200, segment_bytes=2000))
    expected = []
    for count in [1, 3, 2, 7, 1] * 12:
        base = append(log, make_batch(count))
        expected.append((base, base + count - 1))
    assert len(log.segments) > 3
    for first, last in expected:
        for offset in range(first, last + 1):
            assert read_all(log, offset)[0] == (first, last)
            assert read_all(log, offset, 1) == [(first, last)]
    assert read_all(log, log.log_end_offset) == []


def test_the_batch_carries_its_offset_and_leader_epoch(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    append(log, make_batch(2))
    append(log, make_batch(1), leader_epoch=9)
    found = log.read(2, 1000, end_offset=3)
    assert found is not None
    header, _ = next(iter_batches(found.read()))
    found.release()
    assert (header.base_offset, header.partition_leader_epoch) == (2, 9)
    assert log.leader_epochs.entries == [(3, 0), (9, 2)]


@pytest.mark.parametrize("offset", [-1, 3, 100])
def test_an_offset_outside_the_log_is_refused(tmp_path: Path, offset: int) -> None:
    log = make_log(tmp_path)
    append(log, make_batch(2))
    with pytest.raises(KafkaError) as failure:
        log.read(offset, 1000, end_offset=2)
    assert failure.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_log_append_time_replaces_the_timestamp_and_keeps_the_checksum(tmp_path: Path) -> None:
    log = make_log(tmp_path, LogConfig(message_timestamp_type="LogAppendTime"))
    batch = make_batch(1, timestamp=5)
    result = log.append(batch, leader_epoch=0, now_ms=NOW)
    assert result.append_time_ms == NOW
    log.append(make_batch(1, timestamp=7), leader_epoch=0, now_ms=NOW + 1)
    assert log.segments.active.max_timestamp == NOW + 1


def test_idempotent_retries_return_the_first_offsets(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    batches = [make_batch(2, producer=(7, 0, 2 * number)) for number in range(6)]
    for batch in batches:
        append(log, bytearray(batch))
    for number in range(1, 6):
        result = log.append(bytearray(batches[number]), leader_epoch=0, now_ms=NOW)
        assert (result.base_offset, result.last_offset) == (2 * number, 2 * number + 1)
        assert result.duplicate
    with pytest.raises(KafkaError) as failure:
        log.append(bytearray(batches[0]), leader_epoch=0, now_ms=NOW)
    assert failure.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.log_end_offset == 12


def test_what_lies_behind_the_last_index_entry_is_read_up_to_a_bound() -> None:
    """Behind a true entry that may be anything where later entries are missing."""
    store = memory_store(LogConfig(index_interval_bytes=4096))
    log = store.create()
    for number in range(15):
        append(log, make_batch(size=100_000, timestamp=NOW + number))
    log.roll(NOW)
    segment, disk = log.segments[0], store.disk
    positions = list(segment.index.positions)
    for kept, is_known in ((14, True), (5, True), (4, False)):
        segment.unload()
        for suffix, size in ((INDEX, ENTRY_SIZE), (TIME_INDEX, TIME_ENTRY_SIZE)):
            file = disk.open(segment.path(suffix))
            file.truncate(kept * size)
            file.close()
        assert (segment.size - positions[kept - 1] <= LAST_BYTES_MAX) is is_known
        assert (segment.last_entry_position() is not None) is is_known
        segment.indexes.knows_greatest = False
        assert segment.knows_greatest() is is_known


def test_times_are_found_without_loading_the_indexes_of_other_segments(tmp_path: Path) -> None:
    config = LogConfig(index_interval_bytes=100, segment_bytes=2000)
    store = Store(PosixDisk(), config=config, path=tmp_path)
    log = store.create()
    for number in range(100):
        append(log, make_batch(1, timestamp=NOW + number * 10))
    log = store.restart()
    assert record_at(log, NOW + 955) == (NOW + 960, 96, 3)
    loaded = [segment for segment in log.segments if segment.unloadable_bytes]
    assert len(log.segments) > 4
    assert loaded == []
    assert record_at(log, NOW + 5) == (NOW + 10, 1, 3)
    assert [segment for segment in log.segments if segment.unloadable_bytes] == log.segments[:1]


def test_an_offset_that_no_index_can_hold_is_damage_when_an_index_is_rebuilt(
    tmp_path: Path,
) -> None:
    """No checksum covers a base offset."""
    log = make_log(tmp_path)
    append(log, make_batch(2))
    segment = log.segments[-1]
    segment.open().file.write_at(0, b"\x01")
    with pytest.raises(CorruptLog, match="impossible"):
        segment.rebuild_index("a test wants it")
