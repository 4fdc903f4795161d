"""Batches that are appended together end up as if each had been appended by itself."""

from __future__ import annotations

import errno
import random
import struct
from dataclasses import dataclass, field
from typing import Any

import pytest

from doubles.disk import MemoryDisk
from lakelog.base.config.log_config import LogConfig
from lakelog.base.errors import KafkaError
from lakelog.records.batch import CorruptRecord, patch_offset_and_epoch, read_header
from lakelog.records.crc import crc32c
from lakelog.storage.coalescing import read_fetched
from lakelog.storage.log import Log
from storage_kit import NOW, Store, append, index_entries, make_batch, memory_store, read_batches

PLAIN = LogConfig()
SMALL = LogConfig(segment_bytes=3000, index_interval_bytes=200)
SLOW = LogConfig(segment_ms=40, index_interval_bytes=0)
FULL = LogConfig(segment_index_bytes=60, index_interval_bytes=0)
EPOCH = 3


def append_all(log: Log, batches: list[bytearray], now_ms: int) -> list[object]:
    """Append one by one; return offsets or errors."""
    results: list[object] = []
    for batch in batches:
        try:
            results.append(append(log, batch, now_ms=now_ms))
        except (KafkaError, OSError) as error:
            results.append(str(error))
    return results


def append_together(log: Log, batches: list[bytearray], now_ms: int) -> list[object]:
    """Append as a connection does: the first remaining batch alone if there is no run."""
    results: list[object] = []
    while batches:
        views = [memoryview(batch) for batch in batches]
        try:
            taken = log.append_coalesced(views, leader_epoch=EPOCH, now_ms=now_ms)
        except OSError as error:
            results.append(str(error))
            batches = batches[1:]
            continue
        results += taken or append_all(log, batches[:1], now_ms)
        batches = batches[len(taken) or 1 :]
    return results


@dataclass
class Producers:
    """Makes batches, most of which go on where the last one of their producer ended."""

    random: random.Random
    now_ms: int = NOW
    sequences: dict[int, int] = field(default_factory=dict)

    def batch(self) -> bytearray:
        producer_id = self.random.choice((7, 7, 7, 7, 8, -1))
        count = self.random.randint(1, 4)
        sequence = self.sequences.get(producer_id, 0) if producer_id >= 0 else -1
        turn = self.random.random()
        if producer_id >= 0 and turn < 0.05:
            sequence += self.random.choice((-count, 1))
        elif producer_id >= 0:
            self.sequences[producer_id] = sequence + count
        epoch = 0 if producer_id >= 0 else -1
        made = make_batch(
            count,
            size=self.random.choice((1, 50, 400)),
            timestamp=self.now_ms + self.random.choice((0, 0, -5, 30)),
            producer=(producer_id, epoch, sequence),
            transactional=turn > 0.98,
        )
        return self.damaged(made) if 0.05 < turn < 0.12 else made

    def damaged(self, batch: bytearray) -> bytearray:
        kind = self.random.choice(("crc", "short", "offset", "count", "delta", "magic", "future"))
        if kind == "short":
            return batch[: self.random.choice((0, 10, 60, 61, len(batch) - 1))]
        position, layout, value = {
            "crc": (17, ">I", 5),
            "offset": (0, ">q", 1),
            "count": (57, ">i", 9),
            "delta": (23, ">i", -1),
            "magic": (16, ">b", 1),
            "future": (35, ">q", self.now_ms + 7_200_000),
        }[kind]
        struct.pack_into(layout, batch, position, value)
        if kind in ("count", "delta", "future"):
            struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
        return batch


def state(log: Log) -> Any:
    producers = {
        key: (entry.epoch, entry.batches, entry.last_timestamp)
        for key, entry in log.producers.entries.items()
    }
    segments = [
        (
            one.base_offset,
            one.size,
            one.next_offset,
            one.max_timestamp,
            one.indexes.max_timestamp_offset,
        )
        for one in log.segments
    ]
    return log.log_end_offset, log.broken, segments, producers, index_entries(log)


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
        store.log.assign_epoch(EPOCH)
    producers = Producers(random.Random(seed))
    for _ in range(60):
        batches = [producers.batch() for _ in range(producers.random.choice((1, 2, 5, 20)))]
        expected = append_all(one.log, [bytearray(batch) for batch in batches], producers.now_ms)
        assert append_together(other.log, batches, producers.now_ms) == expected
        producers.now_ms += 1
        assert state(other.log) == state(one.log)
    assert read_batches(other.log)
    for store in (one, other):
        store.restart()
    assert files(other) == files(one)


def idempotent(log: Log, number: int) -> list[bytearray]:
    """That many batches of one record; the producer and the segment are known already."""
    append(log, make_batch(producer=(5, 0, 0)))
    append(log, make_batch(producer=(5, 0, 1)))
    return [make_batch(producer=(5, 0, 2 + index)) for index in range(number)]


def test_a_group_is_one_write() -> None:
    store = memory_store()
    log = store.create()
    batches = idempotent(log, 5)
    assert isinstance(store.disk, MemoryDisk)
    steps = store.disk.steps
    views = [memoryview(batch) for batch in batches]
    assert log.append_coalesced(views, leader_epoch=EPOCH, now_ms=NOW) == [2, 3, 4, 5, 6]
    assert store.disk.steps == steps + 1
    assert log.producers.entries[5].last_sequence == 6


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("partial", [0, 1, 100, 300])
def test_a_failed_write_leaves_no_trace_of_the_group(code: int, partial: int) -> None:
    store = memory_store()
    log = store.create()
    batches = idempotent(log, 5)
    before = state(log)
    assert isinstance(store.disk, MemoryDisk)
    store.disk.fail("write", code, suffix=".log", partial=partial)
    with pytest.raises(OSError, match=str(code)):
        log.append_coalesced(
            [memoryview(batch) for batch in batches], leader_epoch=EPOCH, now_ms=NOW
        )
    assert log.broken is (code == errno.EIO)
    log.flushes.broken = False
    assert state(log) == before
    assert [read_header(batch).base_offset for batch in batches] == [0] * 5
    assert [append(log, batch) for batch in batches] == [2, 3, 4, 5, 6]
    assert read_batches(store.killed())[2:] == [bytes(batch) for batch in batches]


@pytest.mark.parametrize(
    "config",
    [
        LogConfig(message_timestamp_type="LogAppendTime"),
        LogConfig(cleanup_policy=frozenset({"compact"})),
        LogConfig(compression_type="gzip"),
        LogConfig(durability="fsync"),
        LogConfig(flush_messages=1),
        LogConfig(message_timestamp_before_max_ms=1000),
    ],
)
def test_topics_whose_batches_are_looked_at_more_closely_have_no_runs(config: LogConfig) -> None:
    store = memory_store()
    log = store.create()
    batches = [memoryview(batch) for batch in idempotent(log, 2)]
    log.use_config(config)
    assert log.append_coalesced(batches, leader_epoch=EPOCH, now_ms=NOW) == []
    log.use_config(PLAIN)
    append(log, make_batch())
    assert log.append_coalesced(batches, leader_epoch=EPOCH, now_ms=NOW) == [3, 4]


def test_a_newer_leader_epoch_begins_with_a_batch_by_itself() -> None:
    store = memory_store()
    log = store.create()
    batches = [memoryview(batch) for batch in idempotent(log, 1)]
    assert log.append_coalesced(batches, leader_epoch=EPOCH + 1, now_ms=NOW) == []


def test_a_group_ends_where_an_index_could_not_say_the_offset() -> None:
    store = memory_store()
    log = store.create()
    batches = idempotent(log, 3)
    log.segments.active.base_offset -= 0x7FFFFFFF - 3
    views = [memoryview(batch) for batch in batches]
    assert log.append_coalesced(views, leader_epoch=EPOCH, now_ms=NOW) == [2, 3]


def test_a_group_may_fill_its_segment_to_the_byte() -> None:
    store = memory_store()
    log = store.create()
    batches = idempotent(log, 3)
    more = [make_batch(), *batches[:2]]
    size = log.segments.active.size + sum(len(batch) for batch in more)
    log.use_config(PLAIN._replace(segment_bytes=size))
    append(log, more[0])
    views = [memoryview(batch) for batch in batches]
    assert log.append_coalesced(views, leader_epoch=EPOCH, now_ms=NOW) == [3, 4]
    assert log.segments.active.size == log.config.segment_bytes


END, LATEST = 10, 5


def fetched_batch(offset: int = END, epoch: int = LATEST, count: int = 3) -> bytearray:
    built = make_batch(count)
    patch_offset_and_epoch(built, 0, offset, epoch)
    return built


@pytest.mark.parametrize(("offset", "epoch"), [(END, LATEST), (END + 7, LATEST), (END, LATEST + 3)])
def test_the_next_batch_is_accepted(offset: int, epoch: int) -> None:
    """Compaction leaves gaps between offsets; a new leader has a new epoch."""
    header = read_fetched(fetched_batch(offset, epoch), END, LATEST)
    assert (header.base_offset, header.last_offset) == (offset, offset + 2)


def test_the_first_batch_of_an_empty_log_has_any_epoch() -> None:
    assert read_fetched(fetched_batch(0, 0), 0, -1).base_offset == 0


def test_a_batch_below_the_end_is_rejected() -> None:
    with pytest.raises(CorruptRecord, match="offsets 9 to 11 where the log ends at 10"):
        read_fetched(fetched_batch(END - 1), END, LATEST)


def test_a_batch_of_an_older_leader_is_rejected() -> None:
    with pytest.raises(CorruptRecord, match="of leader epoch 4, after records of epoch 5"):
        read_fetched(fetched_batch(epoch=LATEST - 1), END, LATEST)


@pytest.mark.parametrize("position", [16, 21, 61, -1])
def test_a_changed_byte_is_noticed(position: int) -> None:
    damaged = fetched_batch()
    damaged[position] ^= 0x10
    with pytest.raises(CorruptRecord, match="at offset 10 arrived damaged"):
        read_fetched(damaged, END, LATEST)


@pytest.mark.parametrize("size", [0, 60, 61, 100])
def test_a_torn_batch_is_noticed(size: int) -> None:
    with pytest.raises(CorruptRecord):
        read_fetched(fetched_batch()[:size], END, LATEST)
