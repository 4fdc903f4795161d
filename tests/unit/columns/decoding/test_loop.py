"""The loop that Numba compiles, run as plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.columns.decoding.loop import (
    CORRUPT,
    headers_end,
    number_at,
    record_at,
    scan,
    short_record_at,
)
from lakelog.records.builder import BatchBuilder, encode_record
from lakelog.records.varint import encode_varint

LONGEST = b"\xff" * 9 + b"\x01"
"""The number of most bytes: -2**63."""


def records(*rows: tuple[bytes | None, bytes | None]) -> bytes:
    """Return the records of a batch with these keys and values."""
    builder = BatchBuilder()
    for number, (key, value) in enumerate(rows):
        builder.append(number, key, value)
    return bytes(builder.build()[61:])


def table(data: Any, *, count: int, last_delta: int, base_offset: int = 0) -> Any:
    """Return the table of one batch, with the timestamps of its records."""
    where = data.ctypes.data, len(data)
    return np.array([(*where, count, last_delta, base_offset, 0, 0, 0)], np.int64)


def arrays(count: int, size: int) -> list[Any]:
    """Return arrays for all columns that hold exactly `count` rows and `size` bytes."""
    column = [(count + 1, np.int32), (count, np.uint8), (size, np.uint8)]
    numbers = [(count, np.int64), (count, np.int64), (count, np.int32)]
    shapes = [*numbers, *column, *column, (count, np.int64), (count, np.int64)]
    return [np.zeros(length, kind) for length, kind in shapes]


def offsets_of(data: bytes, *, count: int, last_delta: int, start: int, end: int) -> list[int]:
    """Return the offsets that `scan` finds in a batch at offset 100; [-1] if it is damaged."""
    frame, columns = np.frombuffer(data, np.uint8), arrays(count, len(data))
    batches = table(frame, count=count, last_delta=last_delta, base_offset=100)
    rows = scan(*[batches, start, end, *columns, np.zeros(1, np.int64)])
    return [CORRUPT] if rows == CORRUPT else columns[0][:rows].tolist()


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
            frame = np.frombuffer(bytes(data), np.uint8)
            batches = table(frame, count=2, last_delta=1)
            state = scan(*[batches, 0, 9, *arrays(2, len(data)), np.zeros(1, np.int64)])
            assert state in (CORRUPT, 2)


def test_the_number_of_the_first_damaged_batch_is_returned() -> None:
    good, bad = (np.frombuffer(records((None, value)), np.uint8) for value in (b"a", b"b" * 9))
    tables = [
        table(good, count=1, last_delta=0),
        table(good, count=1, last_delta=0, base_offset=1),
        table(bad, count=2, last_delta=1, base_offset=2),
    ]
    ends = np.zeros(3, np.int64)
    assert scan(*[np.concatenate(tables), 0, 9, *arrays(4, 40), ends]) == CORRUPT - 2
    assert scan(*[np.concatenate(tables[:2]), 0, 9, *arrays(4, 40), ends]) == 2
    assert ends.tolist() == [1, 2, 0]


@given(
    key=st.none() | st.binary(max_size=70),
    value=st.none() | st.binary(max_size=70) | st.integers(8_180, 8_200).map(bytes),
    time=st.sampled_from([0, 63, 64, 8_191, 8_192, -1, -8_193]),
    delta=st.sampled_from([0, 63, 64, 8_191, 8_192]),
    tail=st.integers(0, 12),
)
def test_a_record_of_short_numbers_is_read_as_any_other(
    key: bytes | None, value: bytes | None, time: int, delta: int, tail: int
) -> None:
    body = encode_record(time, delta, key, value, ())
    frame = encode_varint(len(body)) + body + b"\x55" * tail
    found = short_record_at(frame, 0, len(frame))
    if found[0] != CORRUPT:
        assert found == record_at(frame, 0, len(frame))
    short = len(body) < 8_192 and -8_192 <= time < 8_192 and delta < 8_192
    assert (found[0] != CORRUPT) is (short and (tail >= 7 or found[0] != CORRUPT))


def test_a_word_beyond_the_end_is_never_read() -> None:
    frame = records((b"k", b"v" * 20))
    for size in range(len(frame) + 1):
        assert short_record_at(frame[:size], 0, size)[0] in (CORRUPT, len(frame))


def _two_records() -> bytes:
    builder = BatchBuilder()
    builder.append(5, b"key", b"value", [("h", b"x")])
    builder.append(6, None, b"w" * 70)
    return bytes(builder.build()[61:])
