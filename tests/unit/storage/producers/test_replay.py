"""The state of producers, computed from the batches of a log."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from doubles.disk import MemoryDisk
from lakelog.base.config.log_config import LogConfig
from lakelog.records import crc
from lakelog.storage.errors import CorruptLog
from lakelog.storage.files import LOG, TXN_INDEX
from lakelog.storage.log import Log
from lakelog.storage.preparation import NotReady, Preparation
from lakelog.storage.producers.replay import (
    TruncationJob,
    aborted_of,
    checksum_of_aborted,
    cut_aborted,
    keep_aborted,
    replace_aborted,
    replay,
    write_aborted,
)
from lakelog.storage.producers.state import BATCHES_KEPT, ProducerStateTable
from lakelog.storage.segments.scan import scan_headers
from lakelog.storage.segments.segment import Segment
from lakelog.storage.segments.txn_index import AbortedTransaction, TxnIndex, encode_aborted
from storage_kit import (
    DATA,
    NOW,
    Store,
    aborted_by_segment,
    append,
    append_in_transaction,
    append_marker,
    make_batch,
    memory_store,
)

SMALL = LogConfig(segment_bytes=1500, index_interval_bytes=200, retention_ms=-1)


FOLDER = DATA / "topic-0"


State = dict[int, tuple[int, list[tuple[int, ...]]]]


def state_of(log: Log) -> State:
    return {
        producer_id: (entry.epoch, [tuple(batch) for batch in entry.batches])
        for producer_id, entry in log.producers.entries.items()
    }


def fill(log: Log, rounds: int = 12) -> None:
    for number in range(rounds):
        for producer_id in (3, 4, 5):
            epoch = number // 8 if producer_id == 4 else 0
            sequence = (number - epoch * 8) * 2
            append(log, make_batch(2, producer=(producer_id, epoch, sequence)))
        append(log, make_batch(1))


def filled() -> Store:
    store = memory_store(SMALL)
    fill(store.create())
    assert len(store.log.segments) > 3
    return store


def kill_without_snapshots(store: Store, how: str) -> Log:
    assert isinstance(store.disk, MemoryDisk)
    for name in store.disk.list(FOLDER):
        if not name.endswith(".snapshot"):
            continue
        match how:
            case "remove":
                store.disk.remove(FOLDER / name)
            case "zero":
                store.disk.write_atomic(FOLDER / name, bytes(store.disk.size(FOLDER / name)))
            case "empty":
                store.disk.write_atomic(FOLDER / name, b"")
            case "flip":
                data = bytearray(store.disk.read(FOLDER / name))
                data[-3] ^= 1
                store.disk.write_atomic(FOLDER / name, data)
    return store.killed()


@pytest.mark.parametrize("how", ["remove", "zero", "empty", "flip"])
def test_without_usable_snapshots_the_log_is_replayed(how: str) -> None:
    store = filled()
    expected = state_of(store.log)
    assert all(len(batches) == BATCHES_KEPT or epoch for epoch, batches in expected.values())
    assert state_of(kill_without_snapshots(store, how)) == expected


def test_batches_in_the_replayed_part_are_all_known() -> None:
    store = memory_store()
    log = store.create()
    for sequence in range(6):
        append(log, make_batch(1, producer=(9, 0, sequence)))
    assert [batch[0] for batch in state_of(store.killed())[9][1]] == [1, 2, 3, 4, 5]


def transactional_log() -> Store:
    """Producer 1 aborts, 2 commits, 3 is open; the records of 1 begin in an earlier segment."""
    store = memory_store(SMALL)
    log = store.create()
    append_in_transaction(log, (1, 0, 0))
    append_in_transaction(log, (3, 0, 0))
    log.roll(NOW)
    append_in_transaction(log, (2, 0, 0))
    append_in_transaction(log, (1, 0, 1))
    append_marker(log, 1, 0, commit=False)
    append_marker(log, 2, 0, commit=True)
    return store


def test_markers_end_transactions_and_name_the_aborted() -> None:
    log = transactional_log().log
    table = ProducerStateTable()
    first, second = (replay(table, segment, 0) for segment in log.segments)
    assert first == []
    assert [(entry.producer_id, entry.first_offset, entry.last_offset) for entry in second] == [
        (1, 0, 4)
    ]
    assert [table.is_in_transaction(producer, 0) for producer in (1, 2, 3)] == [False, False, True]


def test_batches_before_the_start_are_not_replayed() -> None:
    log = transactional_log().log
    table = ProducerStateTable()
    assert replay(table, log.segments[0], log.segments[0].next_offset) == []
    assert replay(table, log.segments[1], 4) == [], "no record of the transaction was replayed"
    assert 3 not in table.entries


def test_a_marker_that_cannot_be_read_is_damage_at_its_position() -> None:
    """To skip it would leave its transaction open for ever."""
    store = transactional_log()
    segment = store.log.segments.active
    marker = next(
        (position, header)
        for position, header in scan_headers(segment.open().file, 0, segment.size)
        if header.is_control
    )
    store.disk.open(segment.path(LOG)).write_at(marker[0] + 61, b"\xff" * 4)
    with pytest.raises(CorruptLog) as error:
        replay(ProducerStateTable(), segment, 0)
    assert error.value.position == marker[0]


BATCH = 5
"""Records in a batch."""


def filled_with(batches: int, segment_bytes: int = 1 << 30) -> Store:
    """A log with an idempotent producer, and an aborted transaction in its first segment."""
    store = memory_store(LogConfig(segment_bytes=segment_bytes))
    log = store.create()
    append_in_transaction(log, (50, 0, 0))
    append_marker(log, 50, 0, commit=False)
    for number in range(batches):
        batch = make_batch(BATCH, size=200, producer=(7, 0, number * BATCH))
        append(log, batch, now_ms=NOW)
    return store


def job_of(log: Log, offset: int) -> Preparation:
    """Return the job that a truncation needs first."""
    with pytest.raises(NotReady) as raised:
        log.truncate_to(offset, may_wait=False)
    return raised.value.job


def state(log: Log) -> object:
    entries = {
        producer_id: (entry.epoch, list(entry.batches), entry.txn_first_offset)
        for producer_id, entry in log.producers.entries.items()
    }
    return log.log_end_offset, log.producers.end_offset, entries, aborted_by_segment(log)


class Reads:
    """Counts the bytes that are read from files."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = 0
        opening = MemoryDisk.open

        def opened(disk: MemoryDisk, *arguments: object, **named: object) -> object:
            file = opening(disk, *arguments, **named)  # type: ignore[arg-type]
            reading: Callable[[int, int], bytes] = file.read_at

            def read_at(offset: int, size: int) -> bytes:
                data = reading(offset, size)
                self.bytes += len(data)
                return data

            file.read_at = read_at  # type: ignore[method-assign]
            return file

        monkeypatch.setattr(MemoryDisk, "open", opened)

    @contextmanager
    def in_thread(self) -> Iterator[None]:
        """Do not count these."""
        before = self.bytes
        yield
        self.bytes = before


def read_on_the_loop(batches: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the bytes that the loop reads when it cuts the last batch off a restarted log."""
    store = filled_with(batches)
    with monkeypatch.context() as patch:
        reads = Reads(patch)
        log = store.restart()
        reads.bytes = 0
        while True:
            try:
                log.truncate_to(log.log_end_offset - 1, may_wait=False)
            except NotReady as first:
                with reads.in_thread():
                    first.job.run()
                first.job.finish()
            else:
                return reads.bytes


def test_the_loop_reads_equally_little_of_a_large_log(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = (read_on_the_loop(batches, monkeypatch) for batches in (40, 1000))
    assert large <= small + 2000
    assert large < 100_000, "of a log of more than a megabyte"


@pytest.mark.parametrize("segment_bytes", [1 << 30, 20_000])
@pytest.mark.parametrize("offset", [0, 1, 2, 150, 333, 501])
def test_the_state_is_that_of_the_remaining_log(offset: int, segment_bytes: int) -> None:
    log = filled_with(100, segment_bytes).log
    log.truncate_to(offset)
    found = state(log)
    log.rebuild_producers(list(log.segments))
    assert state(log) == found
    log.truncate_to(0)
    assert log.producers.entries == {}


def test_a_job_is_used_although_the_log_grew() -> None:
    log = filled_with(10).log
    job = job_of(log, 20)
    job.run()
    append(log, make_batch(BATCH, producer=(7, 0, 50)))
    append_in_transaction(log, (51, 0, 0))
    job.finish()
    log.truncate_to(20, may_wait=False)
    assert log.log_end_offset == 17
    assert log.producers.entries[7].last_sequence == 14
    assert 51 not in log.producers.entries


def test_a_job_is_not_used_after_another_truncation() -> None:
    log = filled_with(10).log
    job = job_of(log, 20)
    job.run()
    log.truncate_to(12)
    append(log, make_batch(1, producer=(8, 0, 0)))
    for _ in range(3):
        append(log, make_batch(BATCH))
    job.finish()
    job_of(log, 20)
    log.truncate_to(20)
    assert sorted(log.producers.entries) == [7, 8, 50]


def test_a_job_whose_segments_retention_removed_is_made_again() -> None:
    store = filled_with(100, 20_000)
    log = store.log
    job = job_of(log, 480)
    log.use_config(log.config._replace(retention_bytes=50_000))
    while log.delete_old_segments(NOW, at_once=True):
        pass
    log.delete_old_segments(NOW, at_once=True)
    job.run()
    job.finish()
    assert job.failure is None
    log.truncate_to(480)
    assert log.log_end_offset <= 480


def test_a_failure_of_the_device_removes_nothing() -> None:
    store = filled_with(10)
    log, end = store.log, store.log.log_end_offset
    job = job_of(log, 20)
    assert isinstance(job, TruncationJob)
    store.memory_disk.fail("read", errno.EIO, suffix=LOG)
    job.run()
    job.finish()
    assert job.failure is not None
    assert log.log_end_offset == end


def test_a_damaged_log_is_not_truncated() -> None:
    store = filled_with(10)
    log, end = store.log, store.log.log_end_offset
    segment = log.segments.active
    damaged = segment.position_of(7) + 8  # the length of a batch
    store.memory_disk.open(segment.path(LOG)).write_at(damaged, b"\xff" * 8)
    with pytest.raises(CorruptLog):
        log.truncate_to(40)
    assert log.log_end_offset == end


FIRST = AbortedTransaction(7, 0, 3, 0)
SECOND = AbortedTransaction(8, 4, 6, 4)


def segment_with() -> Segment:
    """A segment with the offsets 0 to 9."""
    log = memory_store().create()
    append(log, make_batch(10))
    return log.segments.active


def stored(segment: Segment) -> bytes | None:
    path = segment.path(TXN_INDEX)
    if not segment.disk.exists(path):
        return None
    file = segment.disk.open(path)
    try:
        return file.read_at(0, file.size())
    finally:
        file.close()


def test_an_entry_is_written_before_its_marker_and_counts_after_it() -> None:
    segment = segment_with()
    write_aborted(segment, FIRST)
    assert aborted_of(segment) == []
    assert stored(segment) == encode_aborted([FIRST])
    keep_aborted(segment, FIRST)
    assert aborted_of(segment) == [FIRST]


def test_the_entry_of_a_marker_that_was_not_appended_is_cut_off() -> None:
    segment = segment_with()
    cut_aborted(segment)
    assert stored(segment) is None, "nothing was aborted here"
    write_aborted(segment, FIRST)
    keep_aborted(segment, FIRST)
    write_aborted(segment, SECOND)
    cut_aborted(segment)
    assert stored(segment) == encode_aborted([FIRST])


def test_entries_are_read_from_their_file_once() -> None:
    segment = segment_with()
    replace_aborted(segment, [FIRST, SECOND])
    segment.txn_index = TxnIndex(None)
    assert aborted_of(segment) == [FIRST, SECOND]
    assert checksum_of_aborted(segment) == crc.crc32c(encode_aborted([FIRST, SECOND]))
    segment.disk.remove(segment.path(TXN_INDEX))
    assert aborted_of(segment) == [FIRST, SECOND]


def test_a_damaged_file_has_no_entries() -> None:
    segment = segment_with()
    replace_aborted(segment, [FIRST._replace(last_offset=10)])
    segment.txn_index = TxnIndex(None)
    assert aborted_of(segment) is None, "no marker is at the end of the segment"


def test_a_segment_without_entries_has_no_file() -> None:
    segment = segment_with()
    replace_aborted(segment, [])
    assert stored(segment) is None
    replace_aborted(segment, [FIRST])
    assert stored(segment) == encode_aborted([FIRST])
    replace_aborted(segment, [])
    assert segment.txn_index is None
    assert stored(segment) is None
