from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Collection, Iterator
from typing import NoReturn

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakelog.columns.decoding import decode as decoding
from lakelog.columns.decoding.decode import ImpossibleTimestampError, decode_columns
from lakelog.columns.decoding.groups import TIMESTAMP_MAX_MS, TIMESTAMP_MIN_MS, column_types
from lakelog.columns.packages import CompiledOrPlain
from lakelog.records.batch import BatchHeader, CorruptRecord, read_header, set_append_time
from lakelog.records.builder import BatchBuilder
from lakelog.records.compression import Codec

pytestmark = [pytest.mark.xdist_group("compiler")]
"""In one process, which keeps the compiled loop."""

Row = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]
Pair = tuple[BatchHeader, bytearray]

ALL = tuple(column_types())
nullable = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=4), nullable), max_size=2)
rows = st.lists(st.tuples(st.integers(0, 2**40), nullable, nullable, headers), min_size=1)


def make(content: list[Row], base: int = 0, codec: Codec = Codec.NONE) -> bytearray:
    builder = BatchBuilder(codec)
    for row in content:
        builder.append(*row)
    return builder.build(base_offset=base)


def pair(batch: bytearray) -> Pair:
    return read_header(batch), batch


def decode(
    batches: list[Pair],
    columns: Collection[str] = ALL,
    *,
    compiled: bool = True,
    start: int = 0,
    end: int = 2**63 - 1,
    null_timestamps: bool = False,
) -> pa.Table:
    found = decode_columns(
        batches, columns, start=start, end=end, null_timestamps=null_timestamps, compiled=compiled
    )
    kinds = pa.schema([(name, column_types()[name]) for name in columns])
    return pa.Table.from_batches(found, kinds)


@pytest.fixture(params=[False, True], ids=["plain", "compiled"])
def compiled(request: pytest.FixtureRequest) -> Iterator[bool]:
    yield request.param


def test_columns_and_their_types(compiled: bool) -> None:
    first = make([(5, b"k", None, [("h", b"x"), ("n", None)])], base=7)
    second = make([(6, None, b"", []), (7, b"", b"w", [])], base=8, codec=Codec.ZSTD)
    set_append_time(second, 0, read_header(second), 9)
    table = decode([pair(first), pair(second)], compiled=compiled)
    assert [list(row.values()) for row in table.to_pylist()] == [
        [7, table["timestamp"][0].as_py(), 0, b"k", None, [
            {"key": "h", "value": b"x"}, {"key": "n", "value": None}], None],
        [8, table["timestamp"][1].as_py(), 1, None, b"", None, None],
        [9, table["timestamp"][2].as_py(), 1, b"", b"w", None, None],
    ]  # fmt: skip
    assert table["timestamp"].cast(pa.int64()).to_pylist() == [5_000, 9_000, 9_000]


def test_only_offsets_in_the_range(compiled: bool) -> None:
    batch = make([(0, None, b"%d" % index, [("h", b"")]) for index in range(10)], base=100)
    table = decode([pair(batch)], start=103, end=105, compiled=compiled)
    assert table["offset"].to_pylist() == [103, 104]
    assert table["value"].to_pylist() == [b"3", b"4"]


@pytest.mark.parametrize("columns", [("value",), ("headers", "key"), ("offset", "rawTimestamp")])
def test_only_columns_that_are_wanted(compiled: bool, columns: tuple[str, ...]) -> None:
    batches = [pair(make([(2**62, b"k", b"v", [("h", b"x")])]))]
    everything = decode(batches, null_timestamps=True, compiled=compiled)

    found = decode(batches, columns, null_timestamps=True, compiled=compiled)

    assert found.equals(everything.select(columns))


def test_nothing_gives_no_batch(compiled: bool) -> None:
    assert list(decode_columns([], ALL, compiled=compiled)) == []
    beyond = decode_columns([pair(make([(0, None, b"v", [])]))], ALL, start=1, compiled=compiled)
    assert list(beyond) == []


def test_control_batches_are_left_out(compiled: bool) -> None:
    builder = BatchBuilder()
    builder.append(0, b"\0\0\0\1", b"\0" * 6)
    assert decode([pair(builder.build(is_control=True))], compiled=compiled).num_rows == 0


def test_decompressed_records_do_not_pile_up(compiled: bool) -> None:
    """Batches that are tiny on the wire are given on one by one once they are large."""
    bombs = [pair(make([(0, None, b"x" * (5 << 20), [])], i, Codec.ZSTD)) for i in range(4)]
    found = decode_columns(bombs, ["value"], compiled=compiled)
    assert [batch.num_rows for batch in found] == [1, 1, 1, 1]


def test_a_header_key_that_is_not_utf_8_is_text_as_in_java(compiled: bool) -> None:
    batch = make([(0, None, b"v", [("k?y", b"x")])])
    batch[batch.index(b"k?y") + 1] = 0xFF
    [row] = decode([pair(batch)], compiled=compiled).to_pylist()
    assert row["headers"] == [{"key": "k\N{REPLACEMENT CHARACTER}y", "value": b"x"}]


@pytest.mark.parametrize("timestamp", [2**62, TIMESTAMP_MAX_MS + 1, TIMESTAMP_MIN_MS - 1, -(2**62)])
def test_an_impossible_timestamp_is_named_or_null(compiled: bool, timestamp: int) -> None:
    possible: list[Row] = [(TIMESTAMP_MIN_MS, None, b"a", []), (TIMESTAMP_MAX_MS, None, b"b", [])]
    batches = [pair(make(possible)), pair(make([(timestamp, None, b"c", [])], base=7))]

    with pytest.raises(ImpossibleTimestampError) as caught:
        decode(batches, compiled=compiled)
    assert (caught.value.offset, caught.value.timestamp) == (7, timestamp)
    assert decode(batches, ["value"], compiled=compiled).num_rows == 3

    table = decode(batches, null_timestamps=True, compiled=compiled)
    assert [time and time.year for time in table["timestamp"].to_pylist()] == [1, 9999, None]
    assert table["rawTimestamp"].to_pylist() == [None, None, timestamp]


@settings(max_examples=40, deadline=None)
@given(
    first=rows,
    second=rows,
    codec=st.sampled_from(list(Codec)),
    cut=st.integers(0, 30),
    columns=st.sets(st.sampled_from(ALL), min_size=1).map(sorted),
)
def test_both_ways_agree(
    first: list[Row], second: list[Row], codec: Codec, cut: int, columns: list[str]
) -> None:
    batches = [pair(make(first, 0, codec)), pair(make(second, len(first), codec))]
    plain = decode(batches, columns, start=cut, end=cut + 25, compiled=False)
    assert decode(batches, columns, start=cut, end=cut + 25).equals(plain)


def outcome(batch: bytearray, *, compiled: bool) -> pa.Table | str:
    try:
        return decode([pair(batch)], null_timestamps=True, compiled=compiled)
    except CorruptRecord as error:
        return str(error)


def test_both_ways_read_a_null_in_more_bytes_than_it_needs() -> None:
    batch = make([(5, b"", b"", [])])
    assert batch[65:67] == b"\0\0"
    for damaged_at in (65, 66):
        long = batch[:damaged_at] + b"\x81\0" + batch[damaged_at + 1 :]
        long[61] += 2
        long[8:12] = (len(long) - 12).to_bytes(4, "big")
        plain = outcome(long, compiled=False)
        assert isinstance(plain, pa.Table)
        assert outcome(long, compiled=True) == plain


def test_both_ways_refuse_the_same_bytes_with_the_same_words() -> None:
    original = make([(5, b"key", b"value", [("h", b"x")]), (6, None, b"w" * 100, [])])
    refused = 0
    for position in range(61, len(original)):
        for flip in (0x01, 0x02, 0x40, 0x80, 0xFF):
            batch = bytearray(original)
            batch[position] ^= flip
            plain = outcome(batch, compiled=False)
            assert outcome(batch, compiled=True) == plain, (position, flip)
            refused += isinstance(plain, str)
    assert refused > 50


@pytest.mark.long
@settings(max_examples=300, deadline=None)
@given(
    content=rows,
    damaged_at=st.integers(0, 10_000),
    bytes_=st.binary(min_size=1, max_size=12),
    count=st.none() | st.integers(-2, 9),
    delta=st.none() | st.integers(-2, 9),
    base=st.sampled_from([0, 5, 2**63 - 2]),
    time=st.sampled_from([0, -1, 2**63 - 1, -(2**63)]),
)
def test_both_ways_agree_on_hostile_bytes(
    content: list[Row],
    damaged_at: int,
    bytes_: bytes,
    count: int | None,
    delta: int | None,
    base: int,
    time: int,
) -> None:
    """With damaged records and with any numbers in the header."""
    batch = make(content)
    start = 61 + damaged_at % (len(batch) - 61)
    bytes_ = bytes_[: len(batch) - start]
    batch[start : start + len(bytes_)] = bytes_
    header = read_header(batch)
    header.base_offset, header.base_timestamp = base, time
    header.records_count = header.records_count if count is None else count
    header.last_offset_delta = header.last_offset_delta if delta is None else delta
    found: list[pa.Table | str] = []
    for compiled in (False, True):
        try:
            batches = decode_columns(
                [(header, batch)], ALL, null_timestamps=True, compiled=compiled
            )
            found.append([each.to_pylist() for each in batches])
        except CorruptRecord as error:
            found.append(str(error))
    assert found[0] == found[1]


def test_a_compiler_that_fails_only_makes_it_slow(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: bool) -> NoReturn:
        raise RuntimeError("no place for the cache")

    monkeypatch.setattr(decoding, "_decoders", CompiledOrPlain("Decoding", fail))
    for _ in range(2):
        table = decode([pair(make([(0, None, b"v", [])]))])
    assert table["value"].to_pylist() == [b"v"]
    assert caplog.text.count("no place for the cache") == 1


def test_without_numba_a_line_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(decoding, "_decoders", CompiledOrPlain("Decoding", decoding._load))
    monkeypatch.setitem(sys.modules, "lakelog.columns.decoding.compiled", None)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert decode([pair(make([(0, None, b"v", [])]))]).num_rows == 1
    assert caplog.text.count("pip install '.[fast]'") == 1


def test_a_process_that_reads_little_does_not_load_the_compiler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(decoding, "_decoders", CompiledOrPlain("Decoding", asked.append))
    batches = [pair(make([(0, None, b"v", [])] * 10))]

    def decode_all(end: int) -> int:
        return sum(batch.num_rows for batch in decode_columns(batches, ["value"], end=end))

    assert decode_all(10) == 10
    assert asked == []
    assert decode_all(10**6) == 10
    assert asked == [False], "without the loops of headers"
    monkeypatch.setattr(decoding, "_decoders", CompiledOrPlain("Decoding", asked.append))
    decoding._decoders.plain_rows = 10**6
    assert decode_all(10) == 10
    assert asked == [False, False]


def test_a_loaded_decoder_decodes_the_last_records_of_a_range_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decoding, "_decoders", CompiledOrPlain("Decoding", decoding._load))
    decode([pair(make([(0, None, b"v", [])]))], ["value"], compiled=True)

    few = list(decode_columns([pair(make([(0, None, b"v", [])]))], ["value"], end=10))

    assert [batch.num_rows for batch in few] == [1]
    assert decoding._decoders.plain_rows == 0


def test_the_compiled_decoder_imports_no_pandas() -> None:
    """Importing pandas would take half of a second in each of Spark's workers."""
    script = """
import sys
from lakelog.columns.decoding.decode import decode_columns
from lakelog.columns.decoding.groups import column_types
from lakelog.records.batch import read_header
from lakelog.records.builder import BatchBuilder
builder = BatchBuilder()
builder.append(0, b"k", b"v", [("h", b"x")])
batch = builder.build()
columns = [name for name in column_types() if name != "rawTimestamp"]
[found] = decode_columns([(read_header(batch), batch)], columns, compiled=True)
assert found.num_rows == 1 and "numba" in sys.modules
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)
