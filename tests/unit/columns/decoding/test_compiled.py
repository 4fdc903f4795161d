from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.columns.decoding.compiled import CompiledDecoder, header_column
from lakelog.columns.decoding.groups import Group, column_types
from lakelog.columns.decoding.loop import copy_headers, count_headers
from lakelog.records.batch import read_header
from lakelog.records.builder import BatchBuilder
from lakelog.records.compression import Codec
from lakelog.records.record import decode_text, record_view
from lakelog.records.varint import encode_varint

pytestmark = [pytest.mark.xdist_group("compiler")]
"""In one process, which keeps the compiled loop."""


def test_batches_of_all_codecs_and_columns_need_one_compilation() -> None:
    decoder = CompiledDecoder(with_headers=True)
    for codec in Codec:
        builder = BatchBuilder(codec)
        builder.append(7, b"key", None, [("h", b"x")])
        batch = builder.build()
        header = read_header(batch)
        for columns in (["offset"], ["offset", "key", "headers"]):
            group = Group()
            group.add(header, record_view(batch, header, 1 << 20))
            assert decoder.decode(group, columns, 0, 9)["offset"].to_pylist() == [0]
    assert [len(loop.signatures) for loop in decoder._loops] == [1, 1, 1]


def test_without_headers_only_one_loop_is_compiled() -> None:
    decoder = CompiledDecoder(with_headers=False)
    assert len(decoder._loops) == 1
    batch = BatchBuilder()
    batch.append(7, b"key", b"value", [("h", b"x")])
    built = batch.build()
    group = Group()
    group.add(read_header(built), record_view(built, read_header(built), 1 << 20))
    assert decoder.decode(group, ["value"], 0, 9)["value"].to_pylist() == [b"value"]


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
