"""Batches that an append rejects, without a trace."""

from __future__ import annotations

import errno
import struct

import pytest

from counted_work import lines_run
from doubles.disk import MemoryDisk
from doubles.disk_faults import Operation
from lakelog.base.config.log_config import LogConfig
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.records.batch import HEADER_SIZE, read_header
from lakelog.records.builder import BatchBuilder
from lakelog.records.compression import Codec
from lakelog.records.crc import crc32c
from lakelog.storage.log import Log
from lakelog.storage.preparation import NotReady
from lakelog.storage.producers.beginnings import AWAITED_MS
from lakelog.storage.reading.seeking import check_append
from storage_kit import (
    NOW,
    ManualClock,
    Store,
    append,
    make_batch,
    memory_store,
    read_batches,
    read_records,
    record_at,
)

DAY = 86_400_000


def resealed(batch: bytearray, offset: int, layout: str, value: int) -> bytearray:
    """The batch with one field changed and a checksum that fits."""
    struct.pack_into(layout, batch, offset, value)
    struct.pack_into(">I", batch, 17, crc32c(batch[21:]))
    return batch


def truncated(batch: bytearray) -> bytearray:
    return batch[:-1]


def extended(batch: bytearray) -> bytearray:
    return batch + make_batch()


def with_magic(batch: bytearray, magic: int) -> bytearray:
    batch[16] = magic
    return batch


def with_wrong_byte(batch: bytearray) -> bytearray:
    batch[-1] ^= 1
    return batch


REFUSED = {
    "empty": (bytearray(), ErrorCode.INVALID_RECORD),
    "a header cut off": (make_batch()[: HEADER_SIZE - 1], ErrorCode.INVALID_RECORD),
    "a batch cut off": (truncated(make_batch(3)), ErrorCode.INVALID_RECORD),
    "two batches": (extended(make_batch(3)), ErrorCode.INVALID_RECORD),
    "an impossible length": (resealed(make_batch(), 8, ">i", -5), ErrorCode.CORRUPT_MESSAGE),
    "a huge length": (resealed(make_batch(), 8, ">i", 0x7FFFFFFF), ErrorCode.INVALID_RECORD),
    "an old format": (with_magic(make_batch(), 1), ErrorCode.INVALID_RECORD),
    "a format of the future": (with_magic(make_batch(), 3), ErrorCode.CORRUPT_MESSAGE),
    "a wrong checksum": (with_wrong_byte(make_batch()), ErrorCode.CORRUPT_MESSAGE),
    "too large": (make_batch(1, size=2000), ErrorCode.MESSAGE_TOO_LARGE),
    "no records": (resealed(make_batch(), 57, ">i", 0), ErrorCode.INVALID_RECORD),
    "more records than offsets": (resealed(make_batch(), 57, ">i", 2), ErrorCode.INVALID_RECORD),
    "more offsets than records": (resealed(make_batch(), 23, ">i", 5), ErrorCode.INVALID_RECORD),
    "negative offsets": (resealed(make_batch(), 23, ">i", -1), ErrorCode.INVALID_RECORD),
    "a base offset": (resealed(make_batch(), 0, ">q", 7), ErrorCode.INVALID_RECORD),
    "control": (resealed(make_batch(), 21, ">h", 0x20), ErrorCode.INVALID_RECORD),
    "append time without a time": (
        resealed(make_batch(timestamp=-1), 21, ">h", 0x08),
        ErrorCode.INVALID_TIMESTAMP,
    ),
    "no such codec": (resealed(make_batch(), 21, ">h", 5), ErrorCode.INVALID_RECORD),
    "no sequence": (make_batch(producer=(1, 0, -1)), ErrorCode.INVALID_RECORD),
    "no epoch": (make_batch(producer=(1, -1, 0)), ErrorCode.INVALID_RECORD),
    "the future": (make_batch(timestamp=NOW + 3_600_001), ErrorCode.INVALID_TIMESTAMP),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_batch_is_refused_and_leaves_nothing(name: str) -> None:
    batch, code = REFUSED[name]
    store = memory_store(LogConfig(max_message_bytes=1000))
    log = store.create()
    append(log, make_batch(2))
    with pytest.raises(KafkaError) as failure:
        log.append(bytearray(batch), leader_epoch=9, now_ms=NOW)
    assert failure.value.code == code
    assert failure.value.message
    assert (log.log_end_offset, log.size) == (2, len(make_batch(2)))
    assert log.leader_epochs.latest == 3
    assert len(log.producers) == 0
    assert append(log, make_batch()) == 2


@pytest.mark.parametrize("bits", [0x40, 0x80, 0x7F00, -0x8000])
def test_a_delete_horizon_and_unknown_attributes_are_taken_as_they_are(bits: int) -> None:
    """As by Apache Kafka (`tests/conformance`)."""
    store = memory_store()
    batch = resealed(make_batch(2), 21, ">h", bits)
    append(store.create(), batch)
    assert read_batches(store.killed()) == [bytes(batch)]


@pytest.mark.parametrize("codec", range(5))
def test_a_producers_claim_of_the_brokers_time_is_taken_back(codec: int) -> None:
    """As by Apache Kafka: the records keep the times that they were given."""
    store = memory_store()
    log = store.create()
    append(log, resealed(make_batch(2, codec=codec), 21, ">h", 0x08 | codec))
    (stored,) = read_batches(log)
    assert stored == make_batch(2, codec=codec)[:12] + (3).to_bytes(4, "big") + stored[16:]
    assert (read_header(stored).timestamp_type, read_header(stored).codec) == (0, codec)
    assert [record.timestamp for record in read_records(log)] == [NOW, NOW + 1]
    assert record_at(log, NOW + 1) == (NOW + 1, 1, 3)
    assert store.killed().log_end_offset == 2


def test_a_claim_of_the_brokers_time_is_refused_where_it_gives_the_time() -> None:
    log = memory_store(LogConfig(message_timestamp_type="LogAppendTime")).create()
    with pytest.raises(KafkaError) as failure:
        append(log, resealed(make_batch(2), 21, ">h", 0x08))
    assert failure.value.code == ErrorCode.INVALID_TIMESTAMP


def test_the_bounds_themselves_are_allowed() -> None:
    log = memory_store(LogConfig(max_message_bytes=len(make_batch()))).create()
    append(log, make_batch(timestamp=NOW + 3_600_000))
    append(log, make_batch(timestamp=0))


def test_the_coordinator_may_write_batches_that_a_client_may_not() -> None:
    log = memory_store().create()
    batch = resealed(make_batch(), 21, ">h", 0x20)
    log.append(batch, leader_epoch=0, now_ms=NOW, origin="coordinator")
    with pytest.raises(KafkaError):
        log.append(with_wrong_byte(make_batch()), leader_epoch=0, now_ms=NOW, origin="coordinator")


@pytest.mark.parametrize("codec", range(5))
def test_the_brokers_time_replaces_the_producers(codec: int) -> None:
    store = memory_store(LogConfig(message_timestamp_type="LogAppendTime"))
    log = store.create()
    for number in range(3):
        batch = make_batch(2, timestamp=5, codec=codec)
        result = log.append(batch, leader_epoch=0, now_ms=NOW + number)
        assert result.append_time_ms == NOW + number
    assert [record.timestamp for record in read_records(log)] == [
        NOW + number // 2 for number in range(6)
    ]
    assert record_at(log, NOW + 1) == (NOW + 1, 2, 0)
    assert store.killed().log_end_offset == 6


def test_a_batch_may_be_a_view_of_a_larger_buffer() -> None:
    log = memory_store().create()
    batch = make_batch(2)
    buffer = bytearray(b"before") + batch + bytearray(b"after")
    view = memoryview(buffer)[6 : 6 + len(batch)]
    assert append(log, make_batch(3)) == 0
    assert log.append(view, leader_epoch=0, now_ms=NOW).base_offset == 3
    assert buffer.startswith(b"before")
    assert buffer.endswith(b"after")
    assert len(read_records(log)) == 5


def producer_batch(sequence: int, epoch: int = 0, count: int = 1, pid: int = 7) -> bytearray:
    return make_batch(count, producer=(pid, epoch, sequence))


def code_of(log: Log, batch: bytearray) -> ErrorCode:
    with pytest.raises(KafkaError) as failure:
        append(log, batch)
    return failure.value.code


def test_sequences_have_no_gap_and_no_return() -> None:
    log = memory_store().create()
    append(log, producer_batch(0, count=3))
    assert code_of(log, producer_batch(4)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert code_of(log, producer_batch(1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert code_of(log, producer_batch(0, count=2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(log, producer_batch(3))
    assert log.log_end_offset == 4


def test_sequences_wrap_to_zero() -> None:
    """KIP-98."""
    log = memory_store().create()
    top = 0x7FFFFFFF
    append(log, producer_batch(top - 2, count=2))
    append(log, producer_batch(top, count=3))
    append(log, producer_batch(2))
    repeated = log.append(producer_batch(top, count=3), leader_epoch=0, now_ms=NOW)
    assert (repeated.base_offset, repeated.last_offset, repeated.duplicate) == (2, 4, True)
    assert code_of(log, producer_batch(4)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_new_epoch_begins_at_zero_and_fences_the_old() -> None:
    log = memory_store().create()
    append(log, producer_batch(0))
    assert code_of(log, producer_batch(1, epoch=1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(log, producer_batch(0, epoch=1))
    assert code_of(log, producer_batch(1, epoch=0)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert code_of(log, producer_batch(0, epoch=0)) == ErrorCode.INVALID_PRODUCER_EPOCH
    append(log, producer_batch(1, epoch=1))


def test_a_producer_that_is_not_known_may_begin_anywhere() -> None:
    log = memory_store().create()
    append(log, producer_batch(500))
    append(log, producer_batch(501))


def test_a_producer_that_is_not_known_begins_at_zero_while_beginnings_are_awaited() -> None:
    log, clock = memory_store().create(), ManualClock()
    log.producers.beginnings.clock_ms = clock.monotonic_ms
    append(log, producer_batch(7, pid=8))
    log.producers.beginnings.await_all()
    append(log, producer_batch(8, pid=8))
    assert code_of(log, producer_batch(2)) == ErrorCode.LEADER_NOT_AVAILABLE
    append(log, producer_batch(0, count=2))
    append(log, producer_batch(2))
    idle = producer_batch(500, pid=9)
    assert code_of(log, idle) == ErrorCode.LEADER_NOT_AVAILABLE
    clock.now_ms += AWAITED_MS
    append(log, idle)


def test_an_idle_producer_is_forgotten() -> None:
    log = memory_store().create()
    append(log, producer_batch(0))
    append(log, producer_batch(0, pid=8))
    append(log, make_batch(timestamp=NOW + DAY, producer=(8, 0, 1)), now_ms=NOW + DAY)
    assert log.producers.remove_expired(NOW + DAY - 1) == 0
    assert log.producers.remove_expired(NOW + DAY) == 1
    append(log, producer_batch(77))
    assert code_of(log, producer_batch(9, pid=8)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_retry_under_the_brokers_time_gets_the_first_time() -> None:
    log = memory_store(LogConfig(message_timestamp_type="LogAppendTime")).create()
    log.append(producer_batch(0), leader_epoch=0, now_ms=NOW)
    again = log.append(producer_batch(0), leader_epoch=0, now_ms=NOW + 5)
    assert (again.base_offset, again.append_time_ms, again.duplicate) == (0, NOW, True)


def test_a_compacted_topic_looks_for_keys_and_passes_over_headers() -> None:
    log = memory_store(LogConfig(cleanup_policy=frozenset({"compact"}))).create()
    builder = BatchBuilder(Codec.ZSTD)
    builder.append(NOW, b"key", b"value", [("", None)] * 20_000)
    batch = builder.build()
    assert lines_run(lambda: append(log, batch)) < 3_000
    assert log.log_end_offset == 1


def test_a_batch_whose_write_failed_may_be_tried_again_as_it_is() -> None:
    store = memory_store()
    log = store.create()
    append(log, make_batch(producer=(7, 0, 0)))
    batch = make_batch(producer=(7, 0, 1))
    assert isinstance(store.disk, MemoryDisk)
    store.disk.fail("write", errno.ENOSPC, suffix=".log", partial=20)
    with pytest.raises(OSError, match=str(errno.ENOSPC)):
        append(log, batch)
    assert append(log, batch) == 1


class _Kept:
    """Of the names that a power failure may keep or lose so many changes are kept."""

    def __init__(self, count: int) -> None:
        self._count = count

    def bytes(self, size: int) -> bytes:
        return bytes(size)

    def below(self, end: int) -> int:
        return min(self._count, end - 1)


@pytest.mark.parametrize(
    ("operation", "suffix"), [("name", ".snapshot.tmp"), ("truncate", ".log"), ("name", ".index")]
)
def test_a_segment_that_could_not_begin_leaves_nothing_behind(
    operation: Operation, suffix: str
) -> None:
    """With its empty file, a start would end the segment before it there."""
    store = memory_store(LogConfig(segment_bytes=700))
    log = store.create()
    append(log, make_batch(size=200))
    append(log, make_batch(size=200))
    log.flush()
    store.directory.write_checkpoints()
    assert isinstance(store.disk, MemoryDisk)
    store.disk.fail(operation, errno.ENOSPC, suffix=f"{2:020d}{suffix}")
    with pytest.raises(OSError, match=str(errno.ENOSPC)):
        append(log, make_batch(size=200))
    assert not log.segments.active.sealed
    append(log, make_batch())
    batches = read_batches(log)
    assert (len(log.segments), len(batches)) == (1, 3)
    log.flush()
    for count in range(10):
        left = store.disk.copy_after_crash(_Kept(count))
        assert read_batches(Store(left, store.clock, store.config).log) == batches
    assert read_batches(store.restart()) == batches
    append(store.log, make_batch(size=200))
    assert [segment.base_offset for segment in store.killed().segments] == [0, 3]


def test_where_that_cannot_be_taken_back_nothing_is_appended_any_more() -> None:
    store = memory_store(LogConfig(segment_bytes=700))
    log = store.create()
    append(log, make_batch(size=400))
    assert isinstance(store.disk, MemoryDisk)
    store.disk.fail("name", errno.ENOSPC, suffix=f"{1:020d}.index")
    store.disk.fail("name", errno.ENOSPC, suffix=f"{1:020d}.log", skip=1)
    with pytest.raises(OSError, match=str(errno.ENOSPC)):
        append(log, make_batch(size=400))
    assert log.broken


@pytest.mark.parametrize("rising", [True, False])
def test_the_first_append_after_a_start_walks_through_no_batches(rising: bool) -> None:
    """In any order of timestamps: a job has done it, in a thread."""

    def lines(batches: int) -> int:
        store = memory_store(LogConfig(index_interval_bytes=500))
        log = store.create()
        for number in range(batches):
            append(log, make_batch(timestamp=NOW + (number if rising else -number)))
        log = store.restart()
        with pytest.raises(NotReady) as first:
            check_append(log.segments)
        first.value.job.run()
        return lines_run(first.value.job.finish) + lines_run(lambda: append(log, make_batch()))

    assert lines(800) < lines(50) + 100
