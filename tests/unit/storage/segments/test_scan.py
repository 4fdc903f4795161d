"""Walks over the batches of a segment, and offsets that no checksum covers."""

from __future__ import annotations

import pytest

from lakelog.records.batch import BatchHeader
from lakelog.storage.errors import CorruptLog
from lakelog.storage.names import LOG
from lakelog.storage.segments.scan import mark_misplaced, scan_headers
from storage_kit import append, make_batch, memory_store


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
