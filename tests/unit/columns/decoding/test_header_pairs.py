from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lakelog.columns.decoding.groups import column_types
from lakelog.columns.decoding.header_pairs import header_column
from lakelog.columns.decoding.loop import copy_headers, count_headers
from lakelog.records.utf8 import decode_text
from lakelog.records.varint import encode_varint

Pairs = list[tuple[bytes, bytes | None]]


def encoded(pairs: Pairs) -> bytes:
    """Return headers as they stand in a record, also with keys that are not UTF-8."""
    parts = [encode_varint(len(pairs))]
    for key, value in pairs:
        parts += [encode_varint(len(key)), key]
        parts += [b"\x01"] if value is None else [encode_varint(len(value)), value]
    return b"".join(parts)


keys = st.sampled_from([b"", b"k", "é".encode(), b"\xff", b"\xed\xa0\x80x"]) | st.binary(max_size=4)
rows = st.lists(st.lists(st.tuples(keys, st.none() | st.binary(max_size=70)), max_size=3))


@given(st.lists(rows, max_size=3))
def test_all_headers_of_all_batches(batches: list[list[Pairs]]) -> None:
    """The loops run as plain Python here."""
    frames, starts, stops, ends = [], [], [], []
    for batch in batches:
        data = b"?"
        for pairs in batch:
            starts.append(len(data) if pairs else -1)
            data += encoded(pairs)
            stops.append(len(data))
        ends.append(len(starts))
        frames.append(data)
    column = columns_of(frames, ends, starts, stops)
    assert column.type == column_types()["headers"]
    assert column.to_pylist() == [
        [{"key": decode_text(key), "value": value} for key, value in pairs] or None
        for batch in batches
        for pairs in batch
    ]


def test_a_count_of_no_headers_in_two_bytes_is_null() -> None:
    assert columns_of([b"\x80\x00"], [1], [0], [2]).to_pylist() == [None]


def columns_of(frames: list[bytes], ends: list[int], starts: list[int], stops: list[int]) -> Any:
    """Return the column of headers of these batches."""
    arrays = [np.frombuffer(frame, np.uint8) for frame in frames]
    batches = [(each.ctypes.data, len(each), 0, 0, 0, 0, 0, 0) for each in arrays]
    table = np.array(batches, np.int64).reshape(-1, 8)
    row_ends, first, last = (np.array(each, np.int64) for each in (ends, starts, stops))
    return header_column(count_headers, copy_headers, table, row_ends, first, last)
