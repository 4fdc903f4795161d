"""Batches that are older than the process are checked before they are served."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from lakelog.base.config.log_config import LogConfig
from lakelog.records.batch import iter_batches, read_header
from lakelog.storage.errors import CorruptLog
from lakelog.storage.log import Log
from lakelog.storage.segments.checking import UncheckedSlice, begin_check
from storage_kit import Store, append, make_batch, memory_store, record_at

SEGMENT = Path("/data/topic-0") / f"{0:020d}.log"


def _store(batches: int = 30) -> Store:
    """A few index entries, then sealed by a roll."""
    store = memory_store(LogConfig(index_interval_bytes=300))
    log = store.create()
    for _ in range(batches):
        append(log, make_batch(2))
    log.roll(store.clock.now_ms)
    append(log, make_batch(2))
    return store


def _change(store: Store, change: Callable[[bytearray], object]) -> None:
    file = store.disk.open(SEGMENT)
    data = bytearray(file.read_at(0, file.size()))
    change(data)
    file.truncate(0)
    file.write_at(0, data)
    file.sync()
    file.close()


def _read(log: Log, offset: int, max_bytes: int = 1 << 20) -> bytes:
    """As a partition does it."""
    while type(found := log.read(offset, max_bytes, end_offset=log.log_end_offset)) is (
        UncheckedSlice
    ):
        job = begin_check(found, log.leader_epochs)
        job.run()
        job.finish()
    assert found is not None
    data = found.read()
    found.release()
    return data


def _first(data: bytes) -> int:
    return read_header(data).base_offset


def test_batches_of_this_process_are_served_at_once() -> None:
    store = _store()
    found = store.log.read(0, 1 << 20, end_offset=60)
    assert found is not None
    assert type(found) is not UncheckedSlice


def test_older_batches_are_checked_once() -> None:
    store = _store()
    log = store.restart()
    found = log.read(10, 500, end_offset=62)
    assert type(found) is UncheckedSlice
    found.release()
    assert _first(_read(log, 10, 500)) == 10
    again = log.read(10, 500, end_offset=62)
    assert type(again) is not UncheckedSlice
    for offset in range(60):
        _read(log, offset, 500)
    assert log.segments[0].unchecked == 0


POSITION = 10 * len(make_batch(2))
"""Of the batch at offset 20."""


def test_before_the_end_of_a_read_within_the_first_batch_there_is_nothing() -> None:
    store = memory_store()
    append(store.create(), make_batch(5))
    log = store.restart()
    for end, is_found in ((3, False), (5, True)):
        found = log.read(0, 1 << 20, end_offset=end)
        assert (found is not None) is is_found


@pytest.mark.parametrize("byte", [3, 7, 12, 16, 17, 25, 60, 80])
def test_a_flipped_bit_is_refused_where_it_is(byte: int) -> None:
    """In the offset, the leader epoch, the magic, the checksum, counts and records."""
    store = _store()
    store.directory.close()

    def flip(data: bytearray) -> None:
        data[POSITION + byte] ^= 4

    _change(store, flip)
    log = store.start().logs["topic", 0]
    for offset in (20, 21):
        with pytest.raises(CorruptLog):
            _read(log, offset)
    served = [header for header, _ in iter_batches(_read(log, 0))]
    assert [header.base_offset for header in served] == list(range(0, served[-1].last_offset, 2))
    assert served[-1].last_offset <= 19
    assert _first(_read(log, 40)) == 40, "the intact batches behind it"


@pytest.mark.parametrize("bit", range(16))
def test_a_flipped_bit_in_a_length_does_not_mislead_a_search(bit: int) -> None:
    """Where the next batch begins is not known then, so more may be refused."""
    store = _store()
    store.directory.close()

    def flip(data: bytearray) -> None:
        data[POSITION + 11 - bit // 8] ^= 1 << bit % 8

    _change(store, flip)
    log = store.start().logs["topic", 0]
    for offset in (20, 21):
        with pytest.raises(CorruptLog):
            _read(log, offset)
    for offset in range(62):
        try:
            header = read_header(_read(log, offset, 500))
        except CorruptLog:
            continue
        assert header.base_offset <= offset <= header.last_offset


@pytest.mark.parametrize("batches", [0, 12, 29])
def test_a_sealed_segment_that_is_cut_between_batches(batches: int) -> None:
    store = _store()
    store.directory.close()

    def cut(data: bytearray) -> None:
        del data[batches * len(make_batch(2)) :]

    _change(store, cut)
    log = store.start().logs["topic", 0]
    for _ in range(2):
        for offset in (2 * batches, 59):
            with pytest.raises(CorruptLog):
                _read(log, offset)
    assert _first(_read(log, 60)) == 60


def test_times_of_damaged_batches_are_not_returned() -> None:
    store = _store()
    store.directory.close()

    def flip(data: bytearray) -> None:
        data[POSITION + 40] ^= 4  # the greatest timestamp in the header

    _change(store, flip)
    log = store.start().logs["topic", 0]
    with pytest.raises(CorruptLog):
        record_at(log, store.clock.now_ms + 1_000)


def test_an_active_segment_is_held_against_its_recovery_point() -> None:
    """After a clean stop its last header may not move the log's end."""
    store = memory_store()
    append(store.create(), make_batch(2))
    store.directory.close()

    def flip(data: bytearray) -> None:
        data[25] ^= 4  # the last offset delta

    _change(store, flip)
    store.start()
    assert list(store.directory.failed) == [("topic", 0)]


def _active_store(batches: int) -> Store:
    """One segment with some index entries, stopped."""
    store = memory_store(LogConfig(index_interval_bytes=300))
    log = store.create()
    for _ in range(batches):
        append(log, make_batch(2))
    store.directory.close()
    return store


def _flip(store: Store, number: int, bit: int) -> None:
    """Of the base offset of a batch, counted from its lowest."""

    def flip(data: bytearray) -> None:
        data[number * len(make_batch(2)) + 7 - bit // 8] ^= 1 << bit % 8

    _change(store, flip)


@pytest.mark.parametrize("bit", [1, 2, 3, 4])
def test_no_batch_is_served_at_another_offset(bit: int) -> None:
    """The log may have that offset as well: then only the next batch shows the error."""
    for number in range(10):
        store = _active_store(11)
        _flip(store, number, bit)
        log = store.start().logs["topic", 0]
        for offset in range(22):
            with suppress(CorruptLog):
                assert _first(_read(log, offset, 500)) == offset // 2 * 2, number
        for offset in (2 * number, 2 * number + 1):
            with pytest.raises(CorruptLog):
                _read(log, offset)


@pytest.mark.parametrize("bit", [0, 2, 6, 30, 40])
def test_batches_appended_behind_a_wrong_base_offset_can_be_read(bit: int) -> None:
    """The way to it does not end at an offset that is too high."""
    for number in range(10):
        store = _active_store(11)
        _flip(store, number, bit)
        log = store.start().logs["topic", 0]
        for _ in range(2):
            for _ in range(3):
                append(log, make_batch(2))
            for offset in range(22, log.log_end_offset, 2):
                assert _first(_read(log, offset, 500)) == offset, number
            log = store.restart()
        store.directory.close()
        _flip(store, number, bit)
        log = store.start().logs["topic", 0]
        assert [_first(_read(log, at, 500)) for at in range(0, 34, 2)] == list(range(0, 34, 2))


def test_a_wrong_base_offset_does_not_hide_the_batch_with_that_offset() -> None:
    """The batch after a read is remembered by the base offset in its header."""
    store = _active_store(11)
    _flip(store, 5, 5)
    log = store.start().logs["topic", 0]
    for _ in range(12):
        append(log, make_batch(2))
    for _ in range(2):
        assert _first(_read(log, 8, len(make_batch(2)))) == 8
        assert _first(_read(log, 42, 500)) == 42
    with pytest.raises(CorruptLog):
        _read(log, 10)


def _raise(store: Store, number: int, *by: int) -> None:
    """Adds to the base offsets of adjacent batches."""

    def add(data: bytearray) -> None:
        for at, more in enumerate(by, number):
            damaged = slice(at * len(make_batch(2)), at * len(make_batch(2)) + 8)
            data[damaged] = (int.from_bytes(data[damaged], "big") + more).to_bytes(8, "big")

    _change(store, add)


@pytest.mark.parametrize("second", [1, 2, 6, 100])
@pytest.mark.parametrize("first", [1, 2, 6, 100])
@pytest.mark.parametrize("backwards", [False, True])
def test_neither_of_two_raised_offsets_vouches_for_the_other(
    first: int, second: int, backwards: bool
) -> None:
    """Only the batch after them, which they overlap, shows the error."""
    for number in range(10):
        store = _active_store(12)
        _raise(store, number, first, second)
        log = store.start().logs["topic", 0]
        for offset in range(23, -1, -1) if backwards else range(24):
            with suppress(CorruptLog):
                _read(log, offset, 500)
                found = log.read(offset, 500, end_offset=24)
                assert found is not None
                due = found.position // len(make_batch(2)) * 2
                served = [header.base_offset for header, _ in iter_batches(found.read())]
                found.release()
                assert served == list(range(due, due + 2 * len(served), 2)), number


@pytest.mark.parametrize("bits", [(6, 6), (6, 8), (30, 30)])
def test_batches_appended_behind_two_raised_offsets_can_be_read(bits: tuple[int, int]) -> None:
    for number in range(9):
        store = _active_store(11)
        _raise(store, number, 1 << bits[0], 1 << bits[1])
        log = store.start().logs["topic", 0]
        log.segments.active.rebuild_index("asked for")
        for _ in range(3):
            append(log, make_batch(2))
        for offset in range(22, log.log_end_offset, 2):
            assert _first(_read(log, offset, 500)) == offset, number


def test_two_readers_may_have_the_same_batches_checked_at_once() -> None:
    """The second finds that nothing is left to note."""
    log = _store().restart()
    jobs = []
    for _ in range(2):
        found = log.read(0, 1 << 20, end_offset=62)
        assert type(found) is UncheckedSlice
        jobs.append(begin_check(found, log.leader_epochs))
    for job in jobs:
        job.run()
    for job in jobs:
        job.finish()
    assert log.segments[0].unchecked == 0
    assert _first(_read(log, 0)) == 0


def test_damage_that_was_cut_off_while_it_was_found_hides_nothing_appended_since() -> None:
    store = _active_store(11)

    def flip(data: bytearray) -> None:
        data[POSITION + 60] ^= 4

    _change(store, flip)
    log = store.start().logs["topic", 0]
    found = log.read(0, 1 << 20, end_offset=22)
    assert type(found) is UncheckedSlice
    job = begin_check(found, log.leader_epochs)
    job.run()
    log.truncate_to(20)
    job.finish()
    for _ in range(3):
        append(log, make_batch(2))
    served = [header.base_offset for header, _ in iter_batches(_read(log, 0))]
    assert served == list(range(0, 26, 2))
