from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakelog.client import arrow
from lakelog.client.arrow import column_types, decode_columns
from lakelog.client.arrow_loop import CORRUPT, scan
from lakelog.records.batch import BatchHeader, CorruptRecord, read_header, set_append_time
from lakelog.records.builder import BatchBuilder
from lakelog.records.compression import Codec

pytestmark = [pytest.mark.xdist_group("compiler")]
"""In one process: what has been compiled is kept there."""

Row = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]

nullable = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=4), nullable), max_size=2)
rows = st.lists(st.tuples(st.integers(0, 2**40), nullable, nullable, headers), min_size=1)


def make(content: list[Row], base: int = 0, codec: Codec = Codec.NONE) -> bytearray:
    builder = BatchBuilder(codec)
    for row in content:
        builder.append(*row)
    return builder.build(base_offset=base)


def pair(batch: bytearray) -> tuple[BatchHeader, bytearray]:
    return read_header(batch), batch


@pytest.fixture(params=[False, True], ids=["plain", "compiled"])
def compiled(request: pytest.FixtureRequest) -> Iterator[bool]:
    yield request.param


def test_columns_and_their_types(compiled: bool) -> None:
    first = make([(5, b"k", None, [("h", b"x"), ("n", None)])], base=7)
    second = make([(6, None, b"", []), (7, b"", b"w", [])], base=8, codec=Codec.ZSTD)
    set_append_time(second, 0, read_header(second), 9)
    table = decode_columns([pair(first), pair(second)], headers=True, compiled=compiled)
    assert table.schema == pa.schema(list(column_types(headers=True).items()))
    assert [list(row.values()) for row in table.to_pylist()] == [
        [7, table["timestamp"][0].as_py(), 0, b"k", None, [
            {"key": "h", "value": b"x"}, {"key": "n", "value": None}]],
        [8, table["timestamp"][1].as_py(), 1, None, b"", None],
        [9, table["timestamp"][2].as_py(), 1, b"", b"w", None],
    ]  # fmt: skip
    assert table["timestamp"].cast(pa.int64()).to_pylist() == [5_000, 9_000, 9_000]


def test_only_offsets_in_the_range(compiled: bool) -> None:
    batch = make([(0, None, b"%d" % index, [("h", b"")]) for index in range(10)], base=100)
    table = decode_columns([pair(batch)], start=103, end=105, headers=True, compiled=compiled)
    assert table["offset"].to_pylist() == [103, 104]
    assert table["value"].to_pylist() == [b"3", b"4"]


def test_nothing_gives_the_same_columns(compiled: bool) -> None:
    table = decode_columns([], headers=True, compiled=compiled)
    assert table.num_rows == 0
    assert table.schema.names == list(column_types(headers=True))


def test_control_batches_are_left_out(compiled: bool) -> None:
    builder = BatchBuilder()
    builder.append(0, b"\0\0\0\1", b"\0" * 6)
    table = decode_columns([pair(builder.build(is_control=True))], compiled=compiled)
    assert table.num_rows == 0


@settings(max_examples=40, deadline=None)
@given(first=rows, second=rows, codec=st.sampled_from(list(Codec)), cut=st.integers(0, 30))
def test_both_ways_agree(first: list[Row], second: list[Row], codec: Codec, cut: int) -> None:
    batches = [pair(make(first, 0, codec)), pair(make(second, len(first), codec))]
    plain = decode_columns(batches, start=cut, end=cut + 25, headers=True, compiled=False)
    assert decode_columns(batches, start=cut, end=cut + 25, headers=True).equals(plain)


def test_both_ways_refuse_the_same_bytes() -> None:
    original = make([(5, b"key", b"value", [("h", b"x")]), (6, None, b"w" * 100, [])])
    refused = 0
    for position in range(61, len(original)):
        for flip in (0x01, 0x02, 0x40, 0x80, 0xFF):
            batch = bytearray(original)
            batch[position] ^= flip
            outcomes = []
            for compiled in (False, True):
                try:
                    outcomes.append(decode_columns([pair(batch)], headers=True, compiled=compiled))
                except CorruptRecord:
                    outcomes.append(None)
                    refused += 1
            assert outcomes[0] == outcomes[1], (position, flip)
    assert refused > 100


def test_the_loop_writes_only_where_it_may() -> None:
    """Run without the compiler, where a position outside an array is an error."""
    original = make([(5, b"key", b"value", []), (6, None, b"w" * 70, [])])[61:]
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


def test_a_compiler_that_fails_only_makes_it_slow(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import lakelog.client.arrow_compiled as module

    def fail() -> None:
        raise RuntimeError("no place for the cache")

    arrow._compiled_decoder.cache_clear()
    monkeypatch.setattr(module, "CompiledDecoder", fail)
    try:
        table = decode_columns([pair(make([(0, None, b"v", [])]))])
    finally:
        arrow._compiled_decoder.cache_clear()
    assert table["value"].to_pylist() == [b"v"]
    assert "no place for the cache" in caplog.text
