"""The state of producers, computed from the batches of a log."""

from __future__ import annotations

import pytest

from doubles.disk import MemoryDisk
from lakelog.base.config.log_config import LogConfig
from lakelog.storage.errors import CorruptLog
from lakelog.storage.log import Log
from lakelog.storage.names import LOG
from lakelog.storage.producers.replay import replay
from lakelog.storage.producers.state import BATCHES_KEPT, ProducerStateTable
from lakelog.storage.segments.scan import scan_headers
from storage_kit import (
    DATA,
    NOW,
    Store,
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
