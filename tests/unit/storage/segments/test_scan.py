"""Walks over the batches of a segment, and offsets that no checksum covers."""

from __future__ import annotations

import pytest

from lakelog.records.batch import BatchHeader
from lakelog.runtime.api import File
from lakelog.storage.errors import CorruptLog
from lakelog.storage.files import LOG
from lakelog.storage.segments.scan import (
    Tail,
    follow,
    greatest_at_end,
    is_true,
    mark_misplaced,
    scan_headers,
    scan_times,
)
from lakelog.storage.segments.segment_index import SegmentIndex
from storage_kit import NOW, append, make_batch, memory_store


def scan(damage: bytes = b"", at: int = 0, cut: int = 0) -> list[tuple[int, int]]:
    """Return position and base offset of 100 batches, after `damage` is written at a byte."""
    store = memory_store()
    log = store.create()
    for _ in range(100):
        append(log, make_batch(2))
    segment = log.segments.active
    file = store.disk.open(segment.path(LOG))
    file.write_at(at, damage)
    found = scan_headers(file, 0, segment.size - cut)
    return [(position, header.base_offset) for position, header in found]


def test_each_batch_is_found_across_windows_of_the_file() -> None:
    size = len(make_batch(2))
    assert scan() == [(number * size, 2 * number) for number in range(100)]
    assert 100 * size > 2 * 4096


@pytest.mark.parametrize(
    ("damage", "at"),
    [(b"\0\0\0\0", 8), (b"\x7f", 8), (b"\xff\xff\xff\xff", 8)],
)
def test_a_batch_of_an_impossible_length_is_damage_at_its_position(damage: bytes, at: int) -> None:
    start = 3 * len(make_batch(2))
    with pytest.raises(CorruptLog) as error:
        scan(damage, start + at)
    assert error.value.position == start


@pytest.mark.parametrize("cut", [1, 20, 100])
def test_a_batch_that_is_cut_off_is_damage(cut: int) -> None:
    with pytest.raises(CorruptLog) as error:
        scan(cut=cut)
    assert error.value.position == 99 * len(make_batch(2))


def misplaced(*ranges: tuple[int, int, int]) -> list[int]:
    """Return the indexes of wrong batches; a range is first and last offset, number of records."""
    headers = []
    for first, last, count in ranges:
        header = BatchHeader.__new__(BatchHeader)
        header.base_offset, header.last_offset_delta = first, last - first
        header.records_count = count
        headers.append(header)
    found = mark_misplaced(enumerate(headers), 10)
    return [number for number, _, is_wrong in found if is_wrong]


def test_offsets_that_follow_each_other_are_right() -> None:
    assert misplaced((10, 11, 2), (12, 12, 1), (13, 20, 8)) == []


def test_gaps_that_compaction_left_are_right() -> None:
    assert misplaced((15, 20, 2), (30, 40, 1), (41, 41, 1)) == []


@pytest.mark.parametrize("wrong", [0, 9, 11])
def test_an_offset_before_the_batch_that_precedes_it_is_wrong(wrong: int) -> None:
    assert misplaced((10, 11, 2), (wrong, wrong, 1), (13, 13, 1)) == [1]


def test_an_offset_that_is_too_high_overlaps_a_following_batch() -> None:
    assert misplaced((10, 11, 2), (14, 14, 1), (13, 13, 1), (14, 14, 1)) == [1]


def test_a_batch_is_not_blamed_for_the_next_one() -> None:
    """It has all its records and follows without a gap; the next offset is too low."""
    assert misplaced((10, 13, 4), (12, 12, 1), (14, 14, 1)) == [1]


def test_two_raised_offsets_do_not_vouch_for_each_other() -> None:
    assert misplaced((10, 10, 1), (111, 111, 1), (112, 112, 1), (13, 13, 1)) == [1, 2]


SIZE = len(make_batch(2))
START = Tail(next_offset=0, bytes_since_entry=0, max_timestamp=-1, max_timestamp_offset=-1)


def log_file(*timestamps: int) -> File:
    """Return a segment with one batch of two records for each timestamp."""
    store = memory_store()
    log = store.create()
    for timestamp in timestamps:
        append(log, make_batch(2, timestamp=timestamp))
    return store.disk.open(log.segments.active.path(LOG))


def index(*entries: tuple[int, int], time: tuple[int, int] | None = None) -> SegmentIndex:
    found = SegmentIndex()
    for offset, position in entries:
        found.add(offset, position)
    if time is not None:
        found.add_time(*time)
    return found


@pytest.mark.parametrize(
    ("offset", "position", "agrees"),
    [(3, SIZE, True), (2, SIZE, False), (3, SIZE + 1, False), (3, 9 * SIZE, False)],
)
def test_an_entry_names_the_batch_at_its_position(offset: int, position: int, agrees: bool) -> None:
    file = log_file(NOW, NOW, NOW)
    assert is_true(file, 0, index((offset, position)), 0) is agrees
    assert is_true(file, 0, SegmentIndex(), -1)


def test_the_end_is_found_behind_an_entry() -> None:
    file = log_file(NOW, NOW + 50, NOW + 7)
    found = follow(file, 3 * SIZE, SIZE, 3, 10 * SIZE, START)
    assert found == Tail(6, 2 * SIZE, NOW + 51, 3)
    assert follow(file, 3 * SIZE, 0, -1, 10 * SIZE, START) == Tail(6, 3 * SIZE, NOW + 51, 3)


@pytest.mark.parametrize(
    ("start", "last_offset", "interval"),
    [
        (SIZE, 5, 10 * SIZE),  # the entry names another batch
        (4 * SIZE, 7, 10 * SIZE),  # it lies beyond the end
        (3 * SIZE, 5, 10 * SIZE),  # it is of the end itself, where no batch begins
        (0, 1, SIZE - 1),  # an append would have added an entry meanwhile
    ],
)
def test_an_entry_that_is_wrong_or_not_the_last_is_noticed(
    start: int, last_offset: int, interval: int
) -> None:
    file = log_file(NOW, NOW, NOW)
    assert follow(file, 3 * SIZE, start, last_offset, interval, START) is None


def test_offsets_below_the_known_ones_are_noticed() -> None:
    file = log_file(NOW, NOW)
    assert follow(file, 2 * SIZE, 0, -1, 10 * SIZE, START._replace(next_offset=1)) is None


def test_the_greatest_timestamp_behind_a_true_time_entry_is_known() -> None:
    file = log_file(NOW, NOW + 9, NOW + 20)
    assert greatest_at_end(file, 3 * SIZE, 0, (1, 0), (NOW + 1, 1)) == (NOW + 21, 5)
    assert greatest_at_end(file, 3 * SIZE, 0, (1, 0), (NOW + 10, 3)) == (NOW + 21, 5)


@pytest.mark.parametrize(
    ("entry", "time"),
    [
        ((3, SIZE), (NOW + 1, 1)),  # the time index ends before the other
        ((1, 0), (NOW + 2, 1)),  # its entry is wrong
        ((1, 3 * SIZE), (NOW + 1, 1)),  # the index entry lies beyond the end
        ((1, 1), (NOW + 1, 1)),  # no batch begins there
    ],
)
def test_entries_that_disagree_with_the_log_have_no_greatest_timestamp(
    entry: tuple[int, int], time: tuple[int, int]
) -> None:
    file = log_file(NOW, NOW + 9, NOW + 20)
    assert greatest_at_end(file, 3 * SIZE, 0, entry, time) is None


def test_times_are_scanned_from_the_last_time_entry_to_the_last_entry() -> None:
    file = log_file(NOW + 9, NOW, NOW + 20)
    entries = (1, 0), (3, SIZE), (5, 2 * SIZE)
    assert scan_times(file, index(*entries, time=(NOW + 10, 1)), 0) == (True, NOW + 10, 1)
    assert scan_times(file, index(*entries, time=(NOW + 5, 1)), 0) == (False, NOW + 10, 1)


def test_damage_behind_an_entry_is_raised() -> None:
    file = log_file(NOW, NOW)
    file.write_at(SIZE + 8, b"\0\0\0\0")
    with pytest.raises(CorruptLog):
        follow(file, 2 * SIZE, 0, -1, 10 * SIZE, START)
