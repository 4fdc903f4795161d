"""Random histories against a list of batches: acknowledged records and their offsets."""

from __future__ import annotations

import errno
import random

import pytest

from doubles.disk import DiskStopped, MemoryDisk
from doubles.randomness import SeededRandom
from lakelog.base.config.log_config import LogConfig
from lakelog.records.batch import iter_batches, read_header
from lakelog.storage.log import Log
from storage_kit import (
    NOW,
    Store,
    append,
    index_entries,
    make_batch,
    memory_store,
    read_batches,
    read_records,
    record_at,
)

CONFIG = LogConfig(segment_bytes=1500, index_interval_bytes=150, file_delete_delay_ms=0)


class Model:
    """The batches that must be in the log: (base offset, bytes as stored)."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.start = self.end = 0
        self.durable = 0
        """Offsets below this must survive a power failure."""

    def append(self, batch: bytes) -> None:
        self.batches.append(batch)
        self.end = read_header(batch).last_offset + 1

    def truncate(self, offset: int) -> None:
        """Whole batches only: the log then ends before the batch that holds `offset`."""
        bases = [read_header(b).base_offset for b in self.batches]
        ends = [read_header(b).last_offset + 1 for b in self.batches]
        within = [base for base, end in zip(bases, ends, strict=True) if base < offset < end]
        self.end = min([offset, *within])
        self.batches = [b for b, end in zip(self.batches, ends, strict=True) if end <= self.end]
        self.start = min(self.start, self.end)
        self.durable = min(self.durable, self.end)

    def visible(self) -> list[bytes]:
        return [b for b in self.batches if read_header(b).last_offset >= self.start]


def random_batch(rng: random.Random) -> bytearray:
    return make_batch(
        rng.randint(1, 5),
        size=rng.choice([1, 20, 200]),
        timestamp=NOW + rng.randint(-1000, 1000),
        codec=rng.randint(0, 4),
    )


def check(log: Log, model: Model) -> None:
    assert (log.log_start_offset, log.log_end_offset) == (model.start, model.end)
    assert read_batches(log, max_bytes=500) == model.visible()


def check_times(log: Log) -> None:
    records = read_records(log)
    for time in range(NOW - 1100, NOW + 1100, 90):
        expected = next((r for r in records if r.timestamp >= time), None)
        found = record_at(log, time)
        assert (found and found[:2]) == (expected and (expected.timestamp, expected.offset))


def fresh_entries(log: Log) -> list[tuple[list[int], list[int], list[int], list[int]]]:
    for segment in log.segments:
        segment.rebuild_index("asked for")
    return index_entries(log)


def step(store: Store, model: Model, rng: random.Random) -> None:
    log = store.log
    match rng.choice(["append"] * 12 + ["truncate", "flush", "restart", "kill", "power", "start"]):
        case "append":
            batch = random_batch(rng)
            append(log, batch)
            model.append(bytes(batch))
        case "truncate" if model.end > model.start:
            offset = rng.randint(model.start, model.end)
            log.truncate_to(offset)
            model.truncate(offset)
        case "flush":
            log.flush()
            store.directory.write_checkpoints()
            model.durable = model.end
        case "restart":
            store.restart()
            model.durable = model.end
        case "kill":
            store.killed()
        case "power":
            power_failure(store, model, rng)
        case "start" if model.durable > model.start:
            model.start = rng.randint(model.start, model.durable)
            log.advance_log_start(model.start)
            log.delete_old_segments(NOW)
            store.directory.write_checkpoints()


def power_failure(store: Store, model: Model, rng: random.Random) -> None:
    """The log is a prefix that contains at least the flushed batches."""
    disk = store.disk
    assert isinstance(disk, MemoryDisk)
    disk.crash(SeededRandom(rng.getrandbits(32)))
    store.start()
    assert store.directory.failed == {}
    end = store.log.log_end_offset
    assert model.durable <= end <= model.end
    model.truncate(end)


@pytest.mark.parametrize("seed", range(40))
def test_a_random_history(seed: int) -> None:
    rng = random.Random(seed)
    store = memory_store(CONFIG)
    model = Model()
    store.create().flush()
    store.directory.write_checkpoints()
    for _ in range(40):
        step(store, model, rng)
        if rng.random() < 0.3:
            check(store.log, model)
    check(store.log, model)
    log = store.log
    check_times(log)
    before = index_entries(log)
    after = fresh_entries(log)
    assert [entry[:2] for entry in before] == [entry[:2] for entry in after]


@pytest.mark.parametrize("torn", [False, True])
def test_a_power_failure_at_every_step_of_a_roll_and_a_flush(torn: bool) -> None:
    """The history is the same each time; only the step at which the power fails moves on."""
    stop, finished = 0, False
    while not finished:
        store = memory_store(CONFIG)
        disk = store.disk
        assert isinstance(disk, MemoryDisk)
        log = store.create()
        log.flush()
        store.directory.write_checkpoints()
        disk.stop_at = disk.steps + stop
        written: list[bytes] = []
        durable = 0
        try:
            for number in range(16):
                batch = make_batch(2, size=60, timestamp=NOW + number)
                append(log, batch)
                written.append(bytes(batch))
                if number % 5 == 4:
                    log.flush()
                    store.directory.write_checkpoints()
                    durable = len(written)
            finished = True
        except DiskStopped:
            pass
        disk.crash(SeededRandom(stop) if torn else None)
        store.start()
        assert store.directory.failed == {}
        kept = read_batches(store.log)
        assert durable <= len(kept) <= len(written) + 1
        assert kept[: len(written)] == written[: len(kept)]
        append(store.log, make_batch(1))
        stop += 1
    assert stop > 40


@pytest.mark.parametrize("kill", [True, False])
def test_a_stop_at_every_step_of_retention_and_truncation(kill: bool) -> None:
    stop, finished = 0, False
    while not finished:
        store = memory_store(CONFIG)
        disk = store.disk
        assert isinstance(disk, MemoryDisk)
        log = store.create()
        written = []
        for number in range(20):
            batch = make_batch(1, size=150, timestamp=NOW + number)
            append(log, batch)
            written.append(bytes(batch))
        log.flush()
        log.advance_log_start(12)
        store.directory.write_checkpoints()
        disk.stop_at = disk.steps + stop
        try:
            log.delete_old_segments(NOW)
            log.delete_old_segments(NOW)
            log.truncate_to(15)
            store.directory.write_checkpoints()
            finished = True
        except DiskStopped:
            pass
        if kill:
            disk.kill()
        else:
            disk.crash()
        store.start()
        assert store.directory.failed == {}, stop
        assert store.log.log_start_offset == 12
        kept = read_batches(store.log)
        assert kept == written[12 : 12 + len(kept)]
        assert store.log.log_end_offset in range(15, 21) or kill
        append(store.log, make_batch(1))
        stop += 1
    assert stop > 5


@pytest.mark.parametrize("skip", range(0, 30, 3))
def test_a_failed_write_leaves_no_trace(skip: int) -> None:
    store = memory_store(CONFIG)
    log = store.create()
    disk = store.disk
    assert isinstance(disk, MemoryDisk)
    disk.fail("write", errno.ENOSPC, suffix=".log", skip=skip, partial=25)
    written: list[bytes] = []
    failures = 0
    while len(written) < 30:
        batch = make_batch(1 + len(written) % 3, producer=(5, 0, log.log_end_offset))
        try:
            append(log, batch)
        except OSError:
            failures += 1
            assert log.segments.active.size == disk.size(log.segments.active.path(".log"))
            continue
        written.append(bytes(batch))
    assert failures == 1
    assert read_batches(log) == written
    assert read_batches(store.killed()) == written


def test_a_full_disk_rejects_appends_until_there_is_space() -> None:
    store = memory_store(CONFIG)
    log = store.create()
    disk = store.disk
    assert isinstance(disk, MemoryDisk)
    written = []
    for capacity in (5000, 9000):
        disk.capacity = capacity
        with pytest.raises(OSError):
            while True:
                batch = make_batch(3)
                append(log, batch)
                written.append(bytes(batch))
        assert read_batches(log) == written
    disk.capacity = None
    append(log, batch := make_batch(3))
    assert read_batches(log) == [*written, bytes(batch)]
    assert read_batches(store.restart()) == [*written, bytes(batch)]


def test_a_write_whose_remains_cannot_be_cut_off_is_cut_off_later() -> None:
    store = memory_store(CONFIG)
    log = store.create()
    disk = store.disk
    assert isinstance(disk, MemoryDisk)
    append(log, first := make_batch(1))
    disk.fail("write", errno.EIO, suffix=".log", partial=50)
    disk.fail("truncate", errno.EIO, suffix=".log")
    with pytest.raises(OSError):
        append(log, make_batch(9))
    assert log.segments.active.torn
    append(log, second := make_batch(1, size=1))
    data = disk.read(log.segments.active.path(".log"))
    assert [bytes(batch) for _, batch in iter_batches(data)] == [first, second]
    assert len(data) == len(first) + len(second)


def test_an_index_that_cannot_be_loaded_lets_nothing_be_written() -> None:
    store = memory_store(CONFIG)
    append(store.create(), make_batch(1))
    log = store.restart()
    before = log.segments.active.size
    disk = store.disk
    assert isinstance(disk, MemoryDisk)
    disk.fail("read", errno.EIO, suffix=".index")
    with pytest.raises(OSError):
        append(log, make_batch(1))
    assert disk.size(log.segments.active.path(".log")) == before
