"""Random histories of a compacted log against a list of all that was ever written."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from compaction_kit import Cleaner, headers
from doubles.disk import DiskStopped, MemoryDisk
from doubles.randomness import SeededRandom
from lakelog.base.config.log_config import LogConfig
from lakelog.records.batch import iter_batches
from lakelog.records.builder import BatchBuilder
from lakelog.records.record import Record, decode_records
from lakelog.storage.compaction.plan import CleanerLimits
from lakelog.storage.log import Log
from storage_kit import (
    NOW,
    Store,
    index_entries,
    memory_store,
    newest_record,
    read_records,
    record_at,
)

RETENTION_MS = 5000
CONFIG = LogConfig(
    segment_bytes=1500,
    index_interval_bytes=200,
    cleanup_policy=frozenset({"compact"}),
    delete_retention_ms=RETENTION_MS,
    file_delete_delay_ms=0,
)
PRODUCERS = 3


@dataclass
class Model:
    """Every record ever written, when tombstones were first cleaned, and the producers' ends."""

    records: list[Record] = field(default_factory=list)
    first_cleaned: dict[int, int] = field(default_factory=dict)
    sequences: dict[int, int] = field(default_factory=dict)
    last: dict[int, tuple[bytearray, int]] = field(default_factory=dict)
    end: int = 0

    def newest(self, end: int) -> dict[bytes | None, int]:
        return {record.key: record.offset for record in self.records if record.offset < end}


def write(log: Log, model: Model, rng: random.Random, now: int) -> None:
    builder = BatchBuilder(rng.choice([0, 0, 1, 2, 3, 4]))
    first = len(model.records)
    for number in range(rng.randint(1, 5)):
        key = rng.choice([b"%d" % rng.randrange(12), b"long" * 10 + b"%d" % rng.randrange(4)])
        value = None if rng.random() < 0.25 else rng.randbytes(rng.choice([0, 5, 90]))
        headers_ = [("h", rng.choice([None, b"x"]))] if rng.random() < 0.2 else []
        time = now + rng.randint(-300, 300)
        builder.append(time, key, value, headers_)
        record = Record(model.end + number, time, key, value, tuple(headers_))
        model.records.append(record)
    count = len(model.records) - first
    producer = rng.randrange(2 * PRODUCERS)
    if producer < PRODUCERS:
        sequence = model.sequences.get(producer, 0)
        batch = builder.build(producer, 0, sequence)
        model.sequences[producer] = sequence + count
        model.last[producer] = bytearray(batch), model.end
    else:
        batch = builder.build()
    result = log.append(batch, leader_epoch=1, now_ms=now)
    assert result.base_offset == model.end and not result.duplicate
    model.end += count


def note_cleaned(model: Model, cleaned: int, now: int) -> None:
    for record in model.records:
        if record.value is None and record.offset < cleaned:
            model.first_cleaned.setdefault(record.offset, now)


def check(log: Log, model: Model, cleaned: int, cleaned_ms: int) -> None:
    """`cleaned_ms` is when the log was last cleaned, up to `cleaned`."""
    found = {record.offset: record for record in read_records(log)}
    written = {record.offset: record for record in model.records}
    assert list(found) == sorted(found)
    assert all(written[offset] == record for offset, record in found.items())
    newest = model.newest(cleaned)
    for record in model.records:
        is_newest = record.offset >= cleaned or newest[record.key] == record.offset
        if not is_newest:
            assert record.offset not in found, "a newer value of the key has been cleaned"
        elif record.value is not None or record.offset >= cleaned:
            assert record.offset in found, "the last value of its key"
        else:
            until = model.first_cleaned[record.offset] + RETENTION_MS
            assert (record.offset in found) == (cleaned_ms < until), "a tombstone's time"


def check_reading(log: Log) -> None:
    """Fetches from every offset, and from some times."""
    records, end = read_records(log), log.log_end_offset
    for offset in range(log.log_start_offset, end):
        found = log.read(offset, 1, end_offset=end)
        assert found is not None
        header, batch = next(iter_batches(found.read()))
        found.release()
        here = decode_records(batch, header, 1 << 20)
        assert header.last_offset >= offset
        assert here == [r for r in records if header.base_offset <= r.offset <= header.last_offset]
        skipped = range(offset, header.base_offset)
        assert not [record for record in records if record.offset in skipped]
    for time in range(NOW - 400, NOW + 40_000, 1700):
        expected = next((r for r in records if r.timestamp >= time), None)
        at = record_at(log, time)
        assert (at and at[:2]) == (expected and (expected.timestamp, expected.offset))
    newest = max(records, key=lambda r: (r.timestamp, -r.offset))
    greatest = newest_record(log)
    assert greatest is not None and greatest[:2] == (newest.timestamp, newest.offset)


def check_producers(log: Log, model: Model) -> None:
    """The last batch of each is recognised, and its next is taken."""
    for producer, (batch, base) in model.last.items():
        result = log.append(bytearray(batch), leader_epoch=1, now_ms=NOW)
        assert (result.duplicate, result.base_offset) == (True, base)
        assert log.producers.entries[producer].batches[-1].last_sequence == (
            model.sequences[producer] - 1
        )


@pytest.mark.parametrize("seed", range(16))
def test_a_random_history(seed: int) -> None:
    rng = random.Random(seed)
    store, model = memory_store(CONFIG), Model()
    store.create().flush()
    limits = CleanerLimits(200 * rng.choice([6, 1000]), 1.0, rng.choice([200, 5000]), 0.0)
    cleaner, cleaned_ms = Cleaner(store, limits), 0
    for _ in range(8):
        for _ in range(rng.randint(1, 20)):
            write(store.log, model, rng, store.clock.now_ms)
        if rng.random() < 0.5:
            store.log.roll(store.clock.now_ms)
        store.log.flush()
        store.clock.now_ms += rng.choice([10, 1000, 3000])
        if cleaner.run() is not None:
            cleaned_ms = store.clock.now_ms
            note_cleaned(model, cleaner.cleaned or 0, cleaned_ms)
        match rng.randrange(4):
            case 0:
                store.restart()
            case 1:
                store.killed()
        check_producers(store.log, model)
        if cleaner.limits.map_bytes > 10_000:
            check(store.log, model, cleaner.cleaned or 0, cleaned_ms)
    while cleaner.run() is not None:
        note_cleaned(model, cleaner.cleaned or 0, store.clock.now_ms)
    check_producers(store.log, model)
    check_reading(store.log)
    before = index_entries(store.log)
    for segment in store.log.segments:
        segment.rebuild_index("asked for")
    assert [entry[:2] for entry in before] == [entry[:2] for entry in index_entries(store.log)]


def history(seed: int) -> tuple[Store, Model, Cleaner]:
    """A log that has been cleaned once and has much to be cleaned again, all durable."""
    rng = random.Random(seed)
    store, model = memory_store(CONFIG), Model()
    store.create()
    cleaner = Cleaner(store)
    for _ in range(2):
        for _ in range(10):
            write(store.log, model, rng, store.clock.now_ms)
        store.log.roll(store.clock.now_ms)
        store.log.flush()
        if cleaner.cleaned is None:
            cleaner.run()
            note_cleaned(model, cleaner.cleaned or 0, store.clock.now_ms)
    store.log.flush()
    store.directory.write_checkpoints()
    return store, model, cleaner


@pytest.mark.histories
@pytest.mark.parametrize(("first", "how"), list(enumerate(["killed", "power", "torn power"])))
def test_a_stop_at_every_step_of_a_compaction(first: int, how: str, is_long: bool) -> None:
    """After a stop at any step, a start finds each segment once and every required record.

    The short form stops in one of the three ways at each step, the long form in all of them.
    """
    stop, finished = (0 if is_long else first), False
    while not finished:
        store, model, cleaner = history(3)
        disk = store.disk
        assert isinstance(disk, MemoryDisk)
        before, cleaned = read_records(store.log), cleaner.cleaned or 0
        producers = sum(1 for header in headers(store.log) if header.producer_id >= 0)
        disk.stop_at = disk.steps + stop
        try:
            cleaner.run()
            store.log.delete_old_segments(store.clock.now_ms)
            finished = True
        except DiskStopped:
            pass
        if how == "killed":
            disk.kill()
        else:
            disk.crash(SeededRandom(stop) if how == "torn power" else None)
        store.start()
        assert store.directory.failed == {}, (stop, store.directory.failed)
        log = store.log
        names = disk.list(log.folder)
        assert not [n for n in names if n.endswith((".cleaned", ".swap", ".deleted"))], stop
        assert sum(n.endswith(".cut") for n in names) == 0, stop
        after = read_records(log)
        assert set(after) <= set(before)
        newest = model.newest(model.end)
        kept = {record.offset for record in after}
        for record in before:
            if (
                newest[record.key] == record.offset
                or record.offset >= log.segments.active.base_offset
            ):
                assert record.offset in kept, stop
        assert log.log_end_offset == model.end
        check_producers(log, model)
        assert producers >= len(model.last)
        again = Cleaner(store)
        again.cleaned = cleaned
        again.run()
        note_cleaned(model, again.cleaned or 0, store.clock.now_ms)
        check(store.log, model, again.cleaned or 0, store.clock.now_ms)
        check_reading(store.log)
        stop += 1 if is_long else 3
    assert stop > 25
