"""Rolling, and which segments go when."""

from __future__ import annotations

import errno

import pytest

from doubles.disk import MemoryDisk
from lakelog.base.config.log_config import LogConfig
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.records.batch import read_header
from lakelog.storage.log import Log
from storage_kit import DATA, NOW, append, make_batch, memory_store, read_batches

HOUR = 3_600_000


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_a_segment_ends_before_it_would_be_too_large() -> None:
    size = len(make_batch())
    log = memory_store(LogConfig(segment_bytes=size * 3 + 1)).create()
    for _ in range(7):
        append(log, make_batch())
    assert bases(log) == [0, 3, 6]


def test_a_batch_larger_than_a_segment_is_refused() -> None:
    log = memory_store(LogConfig(segment_bytes=100)).create()
    with pytest.raises(KafkaError) as failure:
        append(log, make_batch(9))
    assert failure.value.code == ErrorCode.RECORD_LIST_TOO_LARGE


def test_a_segment_ends_by_the_time_of_its_records() -> None:
    log = memory_store(LogConfig(segment_ms=HOUR)).create()
    for minutes in (0, 30, 60, 61, 70, 121, 122):
        append(log, make_batch(timestamp=NOW + minutes * 60_000), now_ms=NOW + 2 * HOUR)
    assert bases(log) == [0, 3, 6]


def test_a_first_record_at_the_epoch_has_a_time() -> None:
    log = memory_store(LogConfig(segment_ms=HOUR)).create()
    for timestamp in (0, HOUR, HOUR + 1):
        append(log, make_batch(timestamp=timestamp))
    assert bases(log) == [0, 2]


def test_without_timestamps_a_segment_ends_by_the_clock() -> None:
    store = memory_store(LogConfig(segment_ms=HOUR))
    log = store.create()
    for minutes in (0, 59, 61, 62):
        append(log, make_batch(timestamp=-1), now_ms=NOW + minutes * 60_000)
    assert bases(log) == [0, 2]


def test_kip_937_a_record_of_the_future_does_not_keep_a_segment_active() -> None:
    store = memory_store(LogConfig(segment_ms=HOUR, message_timestamp_after_max_ms=1 << 62))
    log = store.create()
    append(log, make_batch(timestamp=NOW + 1000 * HOUR), now_ms=NOW)
    for minutes in (59, 61, 62):
        append(log, make_batch(timestamp=NOW + minutes * 60_000), now_ms=NOW + minutes * 60_000)
    assert bases(log) == [0, 2]


def test_the_age_of_a_segment_is_known_after_a_restart() -> None:
    store = memory_store(LogConfig(segment_ms=HOUR))
    append(store.create(), make_batch())
    log = store.restart()
    append(log, make_batch(timestamp=NOW + HOUR), now_ms=NOW + HOUR)
    append(log, make_batch(timestamp=NOW + HOUR + 1), now_ms=NOW + HOUR)
    assert bases(log) == [0, 2]


def test_a_shorter_segment_ms_counts_at_once() -> None:
    log = memory_store(LogConfig(segment_ms=HOUR)).create()
    append(log, make_batch())
    append(log, make_batch(timestamp=NOW + 1000))
    log.use_config(LogConfig(segment_ms=500))
    append(log, make_batch(timestamp=NOW + 1000))
    assert bases(log) == [0, 2]


def test_a_segment_ends_when_its_index_is_full() -> None:
    log = memory_store(LogConfig(segment_index_bytes=48, index_interval_bytes=1)).create()
    for _ in range(9):
        append(log, make_batch(timestamp=NOW))
    assert bases(log) == [0, 7]


def test_a_segment_ends_before_its_offsets_grow_beyond_four_bytes() -> None:
    log = memory_store().create()
    append(log, make_batch())
    log.log_end_offset = log.segments.active.next_offset = 0x7FFFFFFF
    append(log, make_batch())
    assert bases(log) == [0]
    append(log, make_batch())
    assert bases(log) == [0, 0x80000000]


def test_jitter_shortens_the_time() -> None:
    store = memory_store(LogConfig(segment_ms=HOUR, segment_jitter_ms=HOUR))
    log = store.create()
    append(log, make_batch())
    log.roll(NOW)
    assert 0 < log.segments.active.jitter_ms < HOUR


def fill(log: Log, hours: int = 10) -> None:
    """One segment an hour."""
    for hour in range(hours):
        append(log, make_batch(timestamp=NOW + hour * HOUR), now_ms=NOW + hour * HOUR)
        if hour + 1 < hours:
            log.roll(NOW)


def test_only_segments_without_young_records_are_deleted() -> None:
    log = memory_store(LogConfig(retention_ms=3 * HOUR)).create()
    fill(log)
    assert log.delete_old_segments(NOW + 8 * HOUR) == 5
    assert bases(log) == [5, 6, 7, 8, 9]
    assert log.log_start_offset == 5
    assert log.delete_old_segments(NOW + 8 * HOUR) == 0
    with pytest.raises(KafkaError):
        log.read(4, 100, end_offset=10)


def test_when_all_is_old_a_new_segment_begins_first() -> None:
    log = memory_store(LogConfig(retention_ms=HOUR)).create()
    fill(log)
    assert log.delete_old_segments(NOW + 100 * HOUR) == 10
    assert (bases(log), log.log_start_offset, log.log_end_offset) == ([10], 10, 10)
    assert log.delete_old_segments(NOW + 200 * HOUR) == 0


def test_kafka_18929_records_of_the_future_do_not_keep_the_log_for_ever() -> None:
    config = LogConfig(retention_ms=HOUR, message_timestamp_after_max_ms=1 << 62)
    log = memory_store(config).create()
    append(log, make_batch(timestamp=NOW + 1000 * HOUR))
    log.roll(NOW)
    append(log, make_batch())
    assert log.delete_old_segments(NOW + HOUR) == 0
    assert log.delete_old_segments(NOW + HOUR + 1) == 2


def test_the_surplus_goes_from_the_front_and_the_rest_stays() -> None:
    log = memory_store().create()
    fill(log)
    size = log.segments[0].size
    log.use_config(LogConfig(retention_bytes=4 * size + 1, retention_ms=-1))
    assert log.delete_old_segments(NOW) == 5
    log.use_config(LogConfig(retention_bytes=0, retention_ms=-1))
    assert log.delete_old_segments(NOW) == 5
    assert (log.size, log.log_start_offset) == (0, 10)


def test_nothing_above_the_high_watermark_goes() -> None:
    log = memory_store(LogConfig(retention_ms=HOUR)).create()
    fill(log)
    assert log.delete_old_segments(NOW + 100 * HOUR, high_watermark=4) == 4


def test_a_compacted_topic_keeps_old_segments() -> None:
    config = LogConfig(retention_ms=HOUR, cleanup_policy=frozenset({"compact"}))
    log = memory_store(config).create()
    fill(log)
    assert log.delete_old_segments(NOW + 100 * HOUR) == 0
    log.advance_log_start(3)
    assert log.delete_old_segments(NOW + 100 * HOUR) == 3
    log.advance_log_start(10)
    assert log.delete_old_segments(NOW + 100 * HOUR) == 6
    assert bases(log) == [9], "the active segment stays"


def test_an_empty_segment_is_not_rolled() -> None:
    log = memory_store().create()
    log.roll(NOW)
    assert bases(log) == [0]
    append(log, make_batch())
    for _ in range(2):
        log.roll(NOW)
    assert bases(log) == [0, 1]


def test_the_log_start_hides_at_once_and_frees_whole_segments_later() -> None:
    log = memory_store(LogConfig(retention_ms=-1)).create()
    for _ in range(4):
        append(log, make_batch(5))
        log.roll(NOW)
    log.advance_log_start(7)
    with pytest.raises(KafkaError) as failure:
        log.read(6, 100, end_offset=20)
    assert failure.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert len(read_batches(log)) == 3
    assert log.delete_old_segments(NOW) == 1
    assert log.log_start_offset == 7
    log.advance_log_start(3)
    assert log.log_start_offset == 7
    with pytest.raises(KafkaError):
        log.advance_log_start(21)


def test_files_are_removed_after_the_delay_and_readers_finish() -> None:
    store = memory_store(LogConfig(retention_ms=HOUR, file_delete_delay_ms=500))
    log = store.create()
    fill(log, 2)
    found = log.read(0, 1000, end_offset=2)
    assert found is not None
    log.delete_old_segments(NOW + 100 * HOUR)
    names = store.disk.list(DATA / "topic-0")
    assert f"{0:020d}.log.deleted" in names
    assert f"{0:020d}.log" not in names
    log.delete_old_segments(NOW + 100 * HOUR + 500)
    assert not any(name.endswith(".deleted") for name in store.disk.list(DATA / "topic-0"))
    assert len(found.read()) == len(make_batch())
    found.release()


def test_deleted_files_left_by_a_kill_are_removed_at_the_next_start() -> None:
    store = memory_store(LogConfig(retention_ms=HOUR))
    fill(store.create())
    store.log.delete_old_segments(NOW + 8 * HOUR)
    store.killed()
    assert not any(name.endswith(".deleted") for name in store.disk.list(DATA / "topic-0"))


@pytest.mark.parametrize("skip", range(12))
def test_a_deletion_that_fails_half_way_leaves_every_segment_where_it_is_looked_for(
    skip: int,
) -> None:
    size = len(make_batch())
    store = memory_store(LogConfig(segment_bytes=size))
    log = store.create()
    for _ in range(6):
        append(log, make_batch())
    log.use_config(LogConfig(retention_bytes=2 * size, retention_ms=-1))
    store.memory_disk.fail("name", errno.EIO, skip=skip)
    with pytest.raises(OSError, match="Errno"):
        log.delete_old_segments(NOW)
    assert log.log_start_offset == 4 >= bases(log)[0], "offsets before the start are out of range"
    for offset in range(log.log_start_offset, 6):
        found = log.read(offset, 1, end_offset=6)
        assert found is not None
        assert read_header(found.read()).base_offset == offset
        found.release()
    log.delete_old_segments(NOW)
    assert bases(log) == [4, 5]
    assert store.killed().log_start_offset == 4


def test_a_log_that_is_cut_below_its_first_segment_begins_again_there() -> None:
    """And what lay above does not come back with the power."""
    store = memory_store(LogConfig(segment_bytes=300, retention_ms=-1, file_delete_delay_ms=0))
    log = store.create()
    for _ in range(12):
        append(log, make_batch(1, size=60))
    log.advance_log_start(9)
    assert log.delete_old_segments(NOW) > 0
    log.flush()
    assert log.segments[0].base_offset > 3
    log.truncate_to(3)
    assert (log.log_start_offset, log.log_end_offset, len(log.segments)) == (3, 3, 1)
    assert isinstance(store.disk, MemoryDisk)
    left = store.disk.copy_after_crash().list(log.folder)
    assert [name for name in left if name.endswith(".log")] in ([], [f"{3:020d}.log"])
    assert append(log, make_batch(1)) == 3
