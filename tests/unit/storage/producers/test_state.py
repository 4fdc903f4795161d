"""The producers' state after restarts, kills, truncations, and without its snapshots."""

from __future__ import annotations

import struct

import pytest

from lakelog.base.config.log_config import LogConfig
from lakelog.base.errors import KafkaError
from lakelog.storage.log import Log
from lakelog.storage.producers.snapshots import MalformedSnapshot, decode_snapshot, encode_snapshot
from storage_kit import DATA, NOW, Store, append, make_batch, memory_store

SMALL = LogConfig(segment_bytes=1500, index_interval_bytes=200, retention_ms=-1)
FOLDER = DATA / "topic-0"
State = dict[int, tuple[int, list[tuple[int, ...]]]]


def state_of(log: Log) -> State:
    return {
        producer_id: (entry.epoch, [tuple(batch) for batch in entry.batches])
        for producer_id, entry in log.producers.entries.items()
    }


def last_only(state: State) -> State:
    return {producer_id: (epoch, batches[-1:]) for producer_id, (epoch, batches) in state.items()}


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


def test_after_a_kill_the_last_batch_at_least_is_known() -> None:
    store = filled()
    expected = state_of(store.log)
    log = store.killed()
    assert last_only(state_of(log)) == last_only(expected)
    for producer_id, (epoch, batches) in expected.items():
        first = batches[-1][0] - batches[-1][2]
        retry = make_batch(2, producer=(producer_id, epoch, first))
        assert log.append(retry, leader_epoch=3, now_ms=NOW).duplicate


def test_a_clean_stop_keeps_the_last_batch_and_the_gap_check() -> None:
    store = filled()
    expected = state_of(store.log)
    log = store.restart()
    assert state_of(log) == last_only(expected)
    with pytest.raises(KafkaError):
        append(log, make_batch(1, producer=(3, 0, 99)))
    append(log, make_batch(1, producer=(3, 0, 24)))


@pytest.mark.parametrize("offset", [0, 1, 13, 14, 30, 61])
def test_truncation_goes_back_to_the_state_of_that_time(offset: int) -> None:
    store = filled()
    log = store.log
    log.truncate_to(offset)
    fresh = memory_store(SMALL)
    other = fresh.create()
    for number in range(12):
        for producer_id in (3, 4, 5):
            epoch = number // 8 if producer_id == 4 else 0
            if other.log_end_offset + 2 <= log.log_end_offset:
                sequence = (number - epoch * 8) * 2
                append(other, make_batch(2, producer=(producer_id, epoch, sequence)))
        if other.log_end_offset + 1 <= log.log_end_offset:
            append(other, make_batch(1))
    assert other.log_end_offset == log.log_end_offset
    assert last_only(state_of(log)) == last_only(state_of(other))
    assert all(known <= log.log_end_offset for known in log.snapshots.offsets)


def test_state_outlives_the_records_it_came_from() -> None:
    store = filled()
    expected = last_only(state_of(store.log))
    store.log.advance_log_start(store.log.log_end_offset)
    store.log.delete_old_segments(NOW)
    assert last_only(state_of(store.log)) == expected
    store.log.use_config(LogConfig(retention_bytes=0))
    store.log.delete_old_segments(NOW)
    assert store.log.size == 0
    for log in (store.restart(), store.killed()):
        assert last_only(state_of(log)) == expected
    append(store.log, make_batch(1, producer=(3, 0, 24)))


def test_snapshots_are_kept_for_segments_and_the_end() -> None:
    store = filled()
    log = store.restart()
    bases = {segment.base_offset for segment in log.segments} - {0}
    assert set(log.snapshots.offsets) == {*bases, log.log_end_offset}
    append(log, make_batch(1))
    log = store.restart()
    assert set(log.snapshots.offsets) == {*bases, log.log_end_offset}
    log.advance_log_start(log.segments[2].base_offset)
    log.delete_old_segments(NOW)
    assert log.snapshots.offsets[0] == log.segments[0].base_offset


def test_expired_producers_are_not_loaded() -> None:
    store = filled()
    store.clock.now_ms = NOW + 86_400_000 + 5
    assert state_of(store.restart()) == {}


def test_a_snapshot_is_bytes_as_kafka_writes_them() -> None:
    store = memory_store()
    append(store.create(), make_batch(3, producer=(257, 2, 5)))
    data = encode_snapshot(store.log.producers.entries)
    assert len(data) == 10 + 46
    assert struct.unpack_from(">h", data) == (1,)
    fields = struct.unpack_from(">iqhiqiqiq", data, 6)
    assert fields == (1, 257, 2, 7, 2, 2, NOW + 2, -1, -1)
    assert encode_snapshot(decode_snapshot(data)) == data


@pytest.mark.parametrize("size", [0, 9, 20, 55, 57])
def test_a_snapshot_of_the_wrong_size_is_refused(size: int) -> None:
    store = memory_store()
    append(store.create(), make_batch(3, producer=(257, 2, 5)))
    data = encode_snapshot(store.log.producers.entries)
    with pytest.raises(MalformedSnapshot):
        decode_snapshot((data + b"x")[:size])
