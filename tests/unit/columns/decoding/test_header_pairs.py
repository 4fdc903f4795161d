from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lakelog.columns.decoding.groups import column_types
from lakelog.columns.decoding.header_pairs import HeaderPairs
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
    found = HeaderPairs(count_headers, copy_headers)
    for batch in batches:
        starts, stops, data = [], [], b"?"
        for pairs in batch:
            starts.append(len(data) if pairs else -1)
            data += encoded(pairs)
            stops.append(len(data))
        bounds = (np.array(starts, np.int64), np.array(stops, np.int64))
        found.add(np.frombuffer(data, np.uint8), *bounds)
    column = found.column()
    assert column.type == column_types()["headers"]
    assert column.to_pylist() == [
        [{"key": decode_text(key), "value": value} for key, value in pairs] or None
        for batch in batches
        for pairs in batch
    ]


def test_a_count_of_no_headers_in_two_bytes_is_null() -> None:
    found = HeaderPairs(count_headers, copy_headers)
    data = np.frombuffer(b"\x80\x00", np.uint8)
    found.add(data, np.array([0]), np.array([2]))
    assert found.column().to_pylist() == [None]
