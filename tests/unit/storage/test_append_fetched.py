"""A follower's log equals its leader's in everything that does not depend on the broker."""

from __future__ import annotations

import errno
import random
from dataclasses import dataclass, field

import pytest

from lakelog.base.config.log_config import LogConfig
from lakelog.records.batch import CorruptRecord
from lakelog.storage.log import Log
from storage_kit import (
    NOW,
    aborted_by_segment,
    append,
    append_in_transaction,
    append_marker,
    make_batch,
    memory_store,
    read_batches,
)

SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=200)


def follow(leader: Log, follower: Log) -> None:
    """Copy all that the follower lacks."""
    for batch in read_batches(leader, follower.log_end_offset):
        follower.append_fetched(memoryview(batch), now_ms=NOW)


@dataclass
class Producers:
    """Random producers of one log, each with at most one open transaction."""

    log: Log
    chance: random.Random
    sequences: dict[int, int] = field(default_factory=dict)
    open: set[int] = field(default_factory=set)

    def step(self) -> None:
        producer_id, count = self.chance.randrange(4), self.chance.randint(1, 5)
        if producer_id == 0:
            append(self.log, make_batch(count), leader_epoch=3)
        elif producer_id in self.open and self.chance.random() < 0.4:
            self.open.remove(producer_id)
            append_marker(self.log, producer_id, 0, commit=self.chance.random() < 0.5)
        else:
            sequence = self.sequences.get(producer_id, 0)
            append_in_transaction(self.log, (producer_id, 0, sequence), count)
            self.sequences[producer_id] = sequence + count
            self.open.add(producer_id)


def state_of(log: Log) -> object:
    """All that clients can see of a log; snapshots keep a producer's last batch."""
    producers = {
        key: (
            entry.epoch,
            entry.txn_first_offset,
            entry.coordinator_epoch,
            [batch[:3] for batch in entry.batches][-1:],
        )
        for key, entry in log.producers.entries.items()
    }
    aborted = sorted(entry for entries in aborted_by_segment(log) for entry in entries)
    return (
        read_batches(log),
        log.log_end_offset,
        log.last_stable_offset,
        log.leader_epochs.entries,
        producers,
        aborted,
    )


@pytest.mark.parametrize("seed", range(20))
def test_a_follower_has_the_bytes_and_the_state_of_its_leader(seed: int) -> None:
    chance = random.Random(seed)
    stores = memory_store(SMALL), memory_store(SMALL)
    leader, follower = (store.create() for store in stores)
    producers = Producers(leader, chance)
    for _ in range(60):
        producers.step()
        if chance.random() < 0.3:
            follow(leader, follower)
    follow(leader, follower)
    assert state_of(follower) == state_of(leader)
    follower = stores[1].killed() if chance.random() < 0.5 else stores[1].restart()
    assert state_of(follower) == state_of(leader)
    follower.append(make_batch(), leader_epoch=9, now_ms=NOW)


def test_gaps_of_a_compacted_leader_stay() -> None:
    leader, follower = memory_store().create(), memory_store().create()
    for _ in range(3):
        append(leader, make_batch(2))
    batches = read_batches(leader)
    for batch in (batches[0], batches[2]):
        follower.append_fetched(memoryview(batch), now_ms=NOW)
    assert read_batches(follower) == [batches[0], batches[2]]
    assert follower.log_end_offset == 6


def test_a_batch_larger_than_a_segment_has_a_segment_of_its_own() -> None:
    """The leader's segments may be larger, by a change that has not reached the follower."""
    leader, follower = memory_store().create(), memory_store(SMALL).create()
    for size in (10, 2000, 10, 2000):
        append(leader, make_batch(size=size))
    follow(leader, follower)
    assert read_batches(follower) == read_batches(leader)
    assert [segment.base_offset for segment in follower.segments] == [0, 1, 2, 3]


def test_a_batch_that_does_not_continue_the_log_is_rejected() -> None:
    leader, follower = memory_store().create(), memory_store().create()
    append(leader, make_batch(2), leader_epoch=3)
    append(leader, make_batch(2), leader_epoch=5)
    first, second = read_batches(leader)
    follower.append_fetched(memoryview(first), now_ms=NOW)
    damaged = bytearray(second)
    damaged[-1] ^= 1
    for bad in (first, second[:-1], bytes(damaged), second + b"\0"):
        with pytest.raises(CorruptRecord):
            follower.append_fetched(memoryview(bad), now_ms=NOW)
    assert follower.log_end_offset == 2
    follower.append_fetched(memoryview(second), now_ms=NOW)
    older = make_batch(1)
    older[0:8] = (4).to_bytes(8, "big")
    older[12:16] = (4).to_bytes(4, "big")
    with pytest.raises(CorruptRecord, match="leader epoch 4"):
        follower.append_fetched(memoryview(older), now_ms=NOW)


def test_a_failed_write_leaves_the_log_as_it_was() -> None:
    leader = memory_store().create()
    append_in_transaction(leader, (7, 0, 0), 2)
    append_marker(leader, 7, 0, commit=False)
    data, marker = read_batches(leader)
    store = memory_store()
    follower = store.create()
    follower.append_fetched(memoryview(data), now_ms=NOW)
    before = state_of(follower)
    store.memory_disk.fail("write", errno.ENOSPC)
    with pytest.raises(OSError):
        follower.append_fetched(memoryview(marker), now_ms=NOW)
    assert state_of(follower) == before
