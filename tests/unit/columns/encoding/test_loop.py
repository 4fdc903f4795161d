"""The loops that Numba compiles, run as plain Python."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.base.murmur2 import partition_for_key
from lakelog.columns.encoding.loop import (
    body_size,
    headers_size,
    number_size,
    partition_of_key,
    put_bytes,
    put_headers,
    put_number,
    put_word,
    short_varint,
    size_at,
)
from lakelog.records.builder import encode_record
from lakelog.records.varint import encode_varint

int64 = st.integers(-(2**63), 2**63 - 1)


@given(int64)
def test_numbers_are_varints(number: int) -> None:
    out = bytearray(12)
    end = put_number(out, 1, number)
    assert out[1:end] == encode_varint(number)
    assert number_size(number) == end - 1


@pytest.mark.parametrize("edge", [2**6, 2**13, 2**20, 2**27, 2**62])
def test_numbers_at_the_edges_of_their_sizes(edge: int) -> None:
    for number in (edge - 1, edge, -edge, -edge - 1):
        assert number_size(number) == len(encode_varint(number))


@given(st.integers(-(2**13), 2**13 - 1))
def test_short_numbers_are_varints_in_a_word(number: int) -> None:
    out = bytearray(10)
    word, size = short_varint(number)
    put_word(out, 1, word)
    assert out == b"\0" + encode_varint(number).ljust(9, b"\0")
    assert size == number_size(number)


def test_a_negative_word_has_the_highest_bit() -> None:
    out = bytearray(8)
    put_word(out, 0, -2)
    assert out == b"\xfe" + b"\xff" * 7


@given(st.lists(st.tuples(st.text(max_size=9), st.none() | st.binary(max_size=70)), max_size=3))
def test_headers_follow_their_count(headers: list[tuple[str, bytes | None]]) -> None:
    keys = [name.encode() for name, _ in headers]
    values = [value or b"" for _, value in headers]
    key_ends, value_ends = (
        np.cumsum([0, *map(len, items)], dtype=np.int64) for items in (keys, values)
    )
    nulls = np.array([value is None for _, value in headers], np.uint8)
    body = encode_record(0, 0, None, None, headers)
    data = [np.frombuffer(b"".join(items), np.uint8) for items in (keys, values)]
    out = np.zeros(len(body), np.uint8)
    ends = np.array([0, len(headers)])
    end = put_headers(out, 5, 0, ends, key_ends, data[0], value_ends, nulls, data[1])
    assert (end, bytes(out[5:])) == (len(body), body[5:])


@given(st.binary(max_size=40), st.integers(1, 1000), st.integers(0, 5))
def test_keys_select_the_partition_of_javas_producer(key: bytes, count: int, start: int) -> None:
    data = np.frombuffer(bytes(start) + key + b"?", np.uint8)
    assert partition_of_key(data, start, len(key), count) == partition_for_key(key, count)


def test_bytes_follow_their_length_and_null_has_none() -> None:
    out = bytearray(8)
    assert put_bytes(out, 0, b"?abc", 1, 2) == 3
    assert put_bytes(out, 3, b"", 0, -1) == 4
    assert bytes(out) == b"\x04ab\x01\0\0\0\0"


def test_the_size_of_an_item() -> None:
    ends, nulls = np.array([3, 5, 5, 5]), np.array([0, 1, 0])
    assert [size_at(ends, nulls, row) for row in range(3)] == [2, -1, 0]
    assert size_at(ends, nulls[:0], 1) == 0
    assert size_at(ends[:0], nulls, 0) == -1


@given(int64, st.integers(0, 10**6), st.none() | st.binary(max_size=70))
def test_the_size_of_a_record(time: int, delta: int, item: bytes | None) -> None:
    size = -1 if item is None else len(item)
    body = encode_record(time, delta, item, item, [("h", item)])
    ends = np.array([0, 1]), np.array([0, 1]), np.array([0, max(size, 0)])
    headers = headers_size(0, *ends, np.array([item is None]))
    assert body_size(time, delta, size, size, headers) == len(body)
