"""Fetched batches that are appended together end up as if each had been appended by itself."""

from __future__ import annotations

import errno
import random
import struct
from typing import Any

import pytest

from doubles.disk import MemoryDisk
from lakelog.base.config.log_config import LogConfig
from lakelog.records.batch import CorruptRecord, iter_batches
from lakelog.records.crc import crc32c
from lakelog.storage.log import Log
from storage_kit import NOW, Store, index_entries, make_batch, memory_store, read_batches

PLAIN = LogConfig()
SMALL = LogConfig(segment_bytes=3000, index_interval_bytes=200)
SLOW = LogConfig(segment_ms=40, index_interval_bytes=0)
FULL = LogConfig(segment_index_bytes=60, index_interval_bytes=0)
EPOCH = 3


def placed(batch: bytearray, offset: int, epoch: int = EPOCH) -> bytes:
    """Return a batch as a leader stores it."""
    struct.pack_into(">q", batch, 0, offset)
    struct.pack_into(">i", batch, 12, epoch)
    return bytes(batch)


class Leader:
    """Makes the batches of a leader's log, some of them behind a gap or in a newer epoch."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.end, self.epoch, self.now_ms = 0, EPOCH, NOW
        self.sequences: dict[int, int] = {}

    def batch(self) -> bytes:
        chance, count = self.random, self.random.randint(1, 4)
        if chance.random() < 0.03:
            self.epoch += 1
        if chance.random() < 0.05:
            self.end += chance.randint(1, 9)  # compaction removed the records before
        producer_id = chance.choice((7, 7, 7, 8, 9, -1))
        sequence = self.sequences.get(producer_id, 0) if producer_id >= 0 else -1
        self.sequences[producer_id] = sequence + count
        made = make_batch(
            count,
            size=chance.choice((1, 50, 400)),
            timestamp=self.now_ms + chance.choice((0, 0, -5, 30)),
            producer=(producer_id, 0 if producer_id >= 0 else -1, sequence),
        )
        offset, self.end = self.end, self.end + count
        return placed(made, offset, self.epoch)


def alone(log: Log, records: bytes) -> str | None:
    """Append batch by batch; return the error."""
    try:
        for _, batch in iter_batches(records):
            log.append_fetched(batch, now_ms=NOW)
    except (CorruptRecord, OSError) as error:
        return str(error)
    return None


def together(log: Log, records: bytes) -> str | None:
    """Append as a replica does: a batch that begins no run by itself."""
    rest = memoryview(records)
    try:
        while rest := rest[log.append_coalesced_fetched(rest) :]:
            header, batch = next(iter_batches(rest), (None, rest))
            if header is None:
                return None
            log.append_fetched(batch, now_ms=NOW)
            rest = rest[header.size :]
    except (CorruptRecord, OSError) as error:
        return str(error)
    return None


def state(log: Log, first: int = 0) -> Any:
    """first: the number of the first segment whose index is compared."""
    producers = {
        key: (entry.epoch, entry.batches, entry.last_timestamp)
        for key, entry in log.producers.entries.items()
    }
    segments = [
        (one.base_offset, one.size, one.next_offset, one.max_timestamp, one.first_timestamp)
        for one in log.segments
    ]
    ends = log.log_end_offset, log.producers.end_offset, log.broken
    return ends, segments, producers, log.leader_epochs.entries, index_entries(log, first)


def files(store: Store) -> dict[str, bytes]:
    assert isinstance(store.disk, MemoryDisk)
    folder = store.log.folder
    return {name: store.disk.read(folder / name) for name in store.disk.list(folder)}


@pytest.mark.parametrize(
    "config", [PLAIN, SMALL, SLOW, FULL], ids=["plain", "small", "slow", "full"]
)
@pytest.mark.parametrize("seed", range(6))
def test_together_is_as_one_by_one(config: LogConfig, seed: int) -> None:
    one, other = memory_store(config), memory_store(config)
    for store in (one, other):
        store.create()
    leader = Leader(seed)
    for _ in range(60):
        batches = [leader.batch() for _ in range(leader.random.choice((1, 2, 5, 20)))]
        records = b"".join(batches)
        growing = len(one.log.segments) - 1
        if leader.random.random() < 0.3:  # a response may end within a batch
            records += leader.random.randbytes(leader.random.choice((1, 60)))
        assert alone(one.log, records) is None
        assert together(other.log, records) is None
        leader.now_ms += 1
        assert state(other.log, growing) == state(one.log, growing)
    assert state(other.log) == state(one.log)
    assert read_batches(other.log) == read_batches(one.log)
    for store in (one, other):
        store.restart()
    assert files(other) == files(one)


def stored(number: int, first: int = 0) -> list[bytes]:
    """That many batches of one record of a producer, as a leader stores them."""
    return [
        placed(make_batch(producer=(5, 0, index)), index) for index in range(first, first + number)
    ]


@pytest.mark.parametrize("kind", ["crc", "delta", "magic", "length", "overlap", "epoch"])
def test_a_damaged_batch_ends_the_group_before_it(kind: str) -> None:
    results = []
    for append in (alone, together):
        log = memory_store().create()
        assert append(log, b"".join(stored(2))) is None
        batches = [bytearray(batch) for batch in stored(3, 2)]
        position, layout, value = {
            "crc": (17, ">I", 5),
            "delta": (23, ">i", -1),
            "magic": (16, ">b", 1),
            "length": (8, ">i", 48),
            "overlap": (0, ">q", 1),
            "epoch": (12, ">i", EPOCH - 1),
        }[kind]
        struct.pack_into(layout, batches[1], position, value)
        if kind == "delta":
            struct.pack_into(">I", batches[1], 17, crc32c(memoryview(batches[1])[21:]))
        results.append((append(log, b"".join(batches)), state(log)))
    assert results[0] == results[1]
    assert results[0][0] is not None


def test_a_group_is_one_write() -> None:
    store = memory_store()
    log = store.create()
    assert together(log, b"".join(stored(2))) is None
    assert isinstance(store.disk, MemoryDisk)
    steps, records = store.disk.steps, b"".join(stored(5, 2))
    assert log.append_coalesced_fetched(memoryview(records)) == len(records)
    assert store.disk.steps == steps + 1
    assert log.producers.entries[5].last_sequence == 6
    assert log.segments.known_batches.find(2) is not None


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("partial", [0, 1, 100, 300])
def test_a_failed_write_leaves_no_trace_of_the_group(code: int, partial: int) -> None:
    store = memory_store()
    log = store.create()
    assert together(log, b"".join(stored(2))) is None
    before, records = state(log), b"".join(stored(5, 2))
    assert isinstance(store.disk, MemoryDisk)
    store.disk.fail("write", code, suffix=".log", partial=partial)
    with pytest.raises(OSError, match=str(code)):
        log.append_coalesced_fetched(memoryview(records))
    assert log.broken is (code == errno.EIO)
    log.flushes.broken = False
    assert state(log) == before
    assert together(log, records) is None
    assert b"".join(read_batches(store.killed())[2:]) == records


def test_batches_of_a_transaction_are_appended_by_themselves() -> None:
    log = memory_store().create()
    assert together(log, b"".join(stored(2))) is None
    batch = placed(make_batch(producer=(5, 0, 2), transactional=True), 2)
    assert log.append_coalesced_fetched(memoryview(batch)) == 0


def test_a_producer_in_a_new_epoch_begins_with_a_batch_by_itself() -> None:
    log = memory_store().create()
    assert together(log, b"".join(stored(2))) is None
    batch = placed(make_batch(producer=(5, 1, 0)), 2)
    assert log.append_coalesced_fetched(memoryview(batch)) == 0
    assert together(log, batch) is None
    assert log.producers.entries[5].epoch == 1
