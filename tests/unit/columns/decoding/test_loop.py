"""The loop that Numba compiles, run as plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lakelog.columns.decoding.loop import CORRUPT, headers_end, number_at, record_at, scan
from lakelog.records.builder import BatchBuilder

LONGEST = b"\xff" * 9 + b"\x01"
"""The number of most bytes: -2**63."""


def records(*rows: tuple[bytes | None, bytes | None]) -> bytes:
    """Return the records of a batch with these keys and values."""
    builder = BatchBuilder()
    for number, (key, value) in enumerate(rows):
        builder.append(number, key, value)
    return bytes(builder.build()[61:])


def offsets_of(data: bytes, *, count: int, last_delta: int, start: int, end: int) -> list[int]:
    """Return the offsets that `scan` finds in a batch at offset 100; [-1] if it is damaged."""
    size = len(data)
    wide = [np.zeros(count, np.int64) for _ in range(4)]
    ends = [np.zeros(count + 1, np.int32) for _ in range(2)]
    nulls = [np.zeros(count, np.uint8) for _ in range(2)]
    bytes_ = [np.zeros(size, np.uint8) for _ in range(2)]
    columns = [part for each in zip(ends, nulls, bytes_, strict=True) for part in each]
    frame = np.frombuffer(data, np.uint8)
    batch = (frame, count, last_delta, 100, 0, start, end)
    arguments: list[Any] = [*batch, *wide[:2], *columns, *wide[2:], 0]
    rows = scan(*arguments)
    return [CORRUPT] if rows == CORRUPT else wide[0][:rows].tolist()


@pytest.mark.parametrize(
    ("data", "number"),
    [(b"\x00", 0), (b"\x01", -1), (b"\x02", 1), (b"\x80\x01", 64), (LONGEST, -(2**63))],
)
def test_a_number_is_read_to_its_end_and_never_beyond_the_stop(data: bytes, number: int) -> None:
    assert number_at(data + b"?", 0, len(data) + 1) == (number, len(data))
    assert number_at(data + b"?", 0, len(data) - 1) == (0, -1)


def test_a_number_of_more_than_64_bits_is_damaged() -> None:
    assert number_at(b"\x80" * 10 + b"\x00", 0, 11) == (0, -1)


def test_a_null_and_an_empty_value_differ() -> None:
    sizes = [record_at(data, 0, len(data))[6] for data in (records((b"k", v)) for v in (None, b""))]
    assert sizes == [-1, 0]


def test_a_count_of_headers_that_cannot_fit_is_damaged_before_they_are_read() -> None:
    """Each header has at least two bytes, so a count costs no more time than its bytes."""
    assert headers_end(b"\x02\x00\x01", 0, 3) == 3
    assert headers_end(b"\x04\x00\x01", 0, 3) == CORRUPT
    with pytest.raises(IndexError):
        headers_end(b"\x04", 0, 5)  # has room for two headers, so the loop reads the first
    assert headers_end(b"\x06", 0, 5) == CORRUPT
    assert headers_end(b"\x01", 0, 1) == CORRUPT


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [(0, 999, [100, 101, 102]), (101, 102, [101]), (103, 999, []), (0, 100, [])],
)
def test_only_offsets_of_the_range_become_rows(start: int, end: int, expected: list[int]) -> None:
    data = records((None, b"a"), (b"k", None), (None, b"c"))
    assert offsets_of(data, count=3, last_delta=2, start=start, end=end) == expected


@pytest.mark.parametrize(("count", "last_delta"), [(2, 2), (4, 2), (3, 1)])
def test_a_header_that_disagrees_with_the_records_is_damage(count: int, last_delta: int) -> None:
    data = records((None, b"a"), (b"k", None), (None, b"c"))
    assert offsets_of(data, count=count, last_delta=last_delta, start=0, end=999) == [CORRUPT]


def test_an_offset_that_occurs_twice_is_damage() -> None:
    twice = records((None, b"a")) * 2
    assert offsets_of(twice, count=2, last_delta=1, start=0, end=999) == [CORRUPT]


def test_the_loop_writes_only_where_it_may() -> None:
    """Run without the compiler, where a position outside an array is an error."""
    original = _two_records()
    for position in range(len(original)):
        for value in (0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF):
            data = bytearray(original)
            data[position] = value
            size = len(data)
            ends, wide = np.zeros(3, np.int32), np.zeros(2, np.int64)
            arrays = (wide, wide.copy(), ends, np.zeros(2, np.uint8), np.zeros(size, np.uint8))
            more = (
                ends.copy(),
                np.zeros(2, np.uint8),
                np.zeros(size, np.uint8),
                wide.copy(),
                wide.copy(),
            )
            frame = np.frombuffer(bytes(data), np.uint8)
            state = scan(frame, 2, 1, 0, 0, 0, 9, *arrays, *more, 0)
            assert state in (CORRUPT, 2)


def _two_records() -> bytes:
    builder = BatchBuilder()
    builder.append(5, b"key", b"value", [("h", b"x")])
    builder.append(6, None, b"w" * 70)
    return bytes(builder.build()[61:])
