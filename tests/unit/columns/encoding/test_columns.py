from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest

from lakelog.base.errors import ErrorCode
from lakelog.columns.encoding.columns import (
    TIMESTAMP_MAX,
    BadRowError,
    ColumnError,
    as_large_binary,
    header_lengths,
    joined_headers,
    lengths,
    read_headers,
    read_timestamps,
)


def test_a_bad_row_has_its_number_and_its_code_also_in_another_process() -> None:
    error = BadRowError(7, "no such partition", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    for each in (error, pickle.loads(pickle.dumps(error))):
        assert str(each) == "row 7: no such partition"
        assert (each.row, each.code) == (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


ITEMS = [b"a", None, b"", b"ccc", b"a"]
ARRAYS = {
    "binary": pa.array(ITEMS),
    "large binary": pa.array(ITEMS, pa.large_binary()),
    "binary view": pa.array([b"x" * 50, *ITEMS], pa.binary_view())[1:],
    "string": pa.array([None if item is None else item.decode() for item in ITEMS]),
    "large string": pa.array(ITEMS, pa.binary()).cast(pa.large_string()),
    "string view": pa.array(ITEMS, pa.binary()).cast(pa.string()).cast(pa.string_view()),
    "dictionary of views": pa.DictionaryArray.from_arrays(
        pa.array(range(len(ITEMS))), pa.array(ITEMS, pa.binary_view())
    ),
    "runs of views": pa.RunEndEncodedArray.from_arrays(
        pa.array(range(2, len(ITEMS) + 2), pa.int32()), pa.array(ITEMS, pa.binary_view())
    )[1:],
    "dictionary": pa.array(ITEMS).dictionary_encode(),
    "slice": pa.array([b"before", *ITEMS, b"after"])[1:6],
    "slice of a dictionary": pa.array([b"x", *ITEMS, b"y"]).dictionary_encode()[1:6],
    "runs": pa.RunEndEncodedArray.from_arrays([1, 2, 3, 4, 5], pa.array(ITEMS)),
    "slice of runs": pa.RunEndEncodedArray.from_arrays(
        [2, 3, 4, 5, 9], pa.array(ITEMS)
    ).slice(1, 5),
}  # fmt: skip


@pytest.mark.parametrize("name", ARRAYS)
def test_every_form_of_bytes(name: str) -> None:
    expected = ARRAYS[name].to_pylist()
    expected = [item.encode() if isinstance(item, str) else item for item in expected]
    assert expected in (ITEMS, ITEMS[:4] + [b"a"] * 1, ITEMS)
    found = as_large_binary(ARRAYS[name], "key")
    assert (found.type, found.to_pylist()) == (pa.large_binary(), expected)
    assert lengths(ARRAYS[name], "key").to_pylist() == [len(item or b"") for item in expected]


def test_a_column_of_nulls() -> None:
    column = pa.nulls(3)
    assert as_large_binary(column, "key").to_pylist() == [None] * 3
    assert lengths(column, "key").to_pylist() == [0] * 3


def test_bytes_of_a_fixed_size() -> None:
    column = pa.array([b"ab", None], pa.binary(2))
    assert as_large_binary(column, "key").to_pylist() == [b"ab", None]
    assert lengths(column, "key").to_pylist() == [2, 0]


def test_text_need_not_be_utf_8() -> None:
    column = pa.array([b"\xff\xfe"]).view(pa.string())
    assert as_large_binary(column, "key").to_pylist() == [b"\xff\xfe"]


@pytest.mark.parametrize("column", [pa.array([1]), pa.array([[b"a"]]), pa.array([True])])
def test_other_types_are_an_error(column: pa.Array) -> None:
    for work in (lengths, as_large_binary):
        with pytest.raises(ColumnError, match="the column 'key' must be binary or string, not "):
            work(column, "key")


def test_ends_beyond_the_data_are_an_error() -> None:
    ends = pa.array([0, 900, 3], pa.int32()).buffers()[1]
    column = pa.Array.from_buffers(pa.binary(), 2, [None, ends, pa.py_buffer(b"abc")])
    with pytest.raises(ColumnError, match="the column 'value' is damaged"):
        as_large_binary(column, "value")


def test_ends_that_fall_are_an_error() -> None:
    ends = pa.array([0, 3, 1, 3], pa.int32()).buffers()[1]
    column = pa.Array.from_buffers(pa.binary(), 3, [None, ends, pa.py_buffer(b"abc")])
    with pytest.raises(ColumnError, match="the column 'value' is damaged"):
        as_large_binary(column, "value")


def test_a_number_beyond_a_dictionary_is_an_error() -> None:
    indices = pa.array([0, 7], pa.int8())
    column = pa.DictionaryArray.from_arrays(indices, pa.array([b"a"]), safe=False)
    with pytest.raises(ColumnError, match="the column 'value' is damaged"):
        lengths(column, "value")


PAIR = pa.struct([("key", pa.string()), ("value", pa.binary())])
ROWS: list[list[tuple[str, bytes | None]] | None] = [
    [("h", b"x"), ("", None)],
    None,
    [],
    [("i", b"")],
]
PAIRS = [None if row is None else [{"key": k, "value": v} for k, v in row] for row in ROWS]


def content(column: pa.Array) -> list[list[tuple[bytes, bytes | None]]]:
    found = read_headers(column, 0)
    pairs = list(zip(found.keys.to_pylist(), found.values.to_pylist(), strict=True))
    ends = found.ends.to_pylist()
    return [pairs[ends[row] : ends[row + 1]] for row in range(len(column))]


EXPECTED = [[(key.encode(), value) for key, value in row or ()] for row in ROWS]


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(PAIR),
        pa.large_list(PAIR),
        pa.list_view(PAIR),
        pa.large_list_view(PAIR),
        pa.list_(pa.struct([("value", pa.large_string()), ("key", pa.large_string())])),
        pa.list_(pa.struct([("key", pa.string_view()), ("value", pa.binary_view())])),
    ],
    ids=str,
)
def test_every_form_of_a_list(kind: pa.DataType) -> None:
    column = pa.array(PAIRS, kind)
    assert content(column) == EXPECTED
    assert content(column[1:3]) == EXPECTED[1:3]
    assert content(column[3:]) == EXPECTED[3:]


def test_a_map_and_a_list_of_a_fixed_size() -> None:
    column = pa.array(ROWS, pa.map_(pa.string(), pa.binary()))
    assert content(column) == EXPECTED
    assert content(column[1:]) == EXPECTED[1:]
    fixed = pa.array([[PAIRS[3][0]], None], pa.list_(PAIR, 1))  # type: ignore[index]
    assert content(fixed) == [[(b"i", b"")], []]


def test_only_nulls_and_no_rows() -> None:
    assert content(pa.nulls(2)) == [[], []]
    assert content(pa.array([], pa.list_(PAIR))) == []


def test_a_null_list_may_hide_pairs() -> None:
    inner = pa.array([{"key": "a", "value": b"b"}] * 3, PAIR)
    column = pa.ListArray.from_arrays([0, 1, 2, 3], inner, mask=pa.array([False, True, False]))
    assert content(column) == [[(b"a", b"b")], [], [(b"a", b"b")]]


def test_lengths_count_the_bytes_and_ten_for_each_header() -> None:
    column = pa.array(PAIRS, pa.list_(PAIR))
    assert header_lengths(column, 0).to_pylist() == [22, 0, 0, 11]
    assert header_lengths(column[2:], 0).to_pylist() == [0, 11]


def test_pieces_are_joined() -> None:
    pieces = [read_headers(pa.array(PAIRS, pa.list_(PAIR))[at : at + 2], 0) for at in (0, 2)]
    joined = joined_headers(pieces)
    assert joined.ends.to_pylist() == [0, 2, 2, 2, 3]
    assert joined.keys.to_pylist() == [b"h", b"", b"i"]
    assert joined.values.to_pylist() == [b"x", None, b""]


@pytest.mark.parametrize("pair", [None, {"key": None, "value": b"x"}])
def test_a_header_without_a_key_names_its_row(pair: Any) -> None:
    column = pa.array([None, PAIRS[0], [], [*PAIRS[3], pair]], pa.list_(PAIR))  # type: ignore[misc]
    with pytest.raises(BadRowError, match="row 103: a header without a key"):
        read_headers(column, 100)


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.list_(pa.string()),
        pa.map_(pa.binary(), pa.binary()),
        pa.list_(pa.struct([("key", pa.string())])),
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary()), ("x", pa.int8())])),
        pa.list_(pa.struct([("key", pa.int8()), ("value", pa.binary())])),
    ],
    ids=str,
)
def test_headers_other_types_are_an_error(kind: pa.DataType) -> None:
    with pytest.raises(ColumnError, match="the column 'headers' must be list<struct<key: string"):
        read_headers(pa.array([None], kind), 0)


def test_values_of_another_type_are_an_error() -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.int8())]))
    with pytest.raises(ColumnError, match="must be binary or string, not int8"):
        read_headers(pa.array([None], kind), 0)


def test_a_key_that_is_not_utf_8_is_an_error() -> None:
    keys = pa.array([b"\xff"]).view(pa.string())
    inner = pa.StructArray.from_arrays([keys, pa.array([b"x"])], ["key", "value"])
    with pytest.raises(ColumnError, match=r"the column .headers. is damaged: .*UTF8"):
        read_headers(pa.ListArray.from_arrays([0, 1], inner), 0)


def read(column: pa.Array) -> list[int]:
    piece = pa.RecordBatch.from_arrays([column], ["timestamp"])
    found = read_timestamps(piece, 42, 100)
    assert found.type == pa.int64()
    return list(found.to_pylist())


@pytest.mark.parametrize(
    ("unit", "number", "milliseconds"),
    [("s", 5, 5000), ("ms", 5, 5), ("us", 5999, 5), ("ns", 5_999_999, 5)],
)
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo"])
def test_every_unit(unit: str, number: int, milliseconds: int, zone: str | None) -> None:
    kind = pa.timestamp(unit, zone)
    assert read(pa.array([number, None], pa.int64()).cast(kind)) == [milliseconds, 42]


def test_integers_are_milliseconds_and_minus_one_is_none() -> None:
    assert read(pa.array([-1, 0, None, TIMESTAMP_MAX])) == [-1, 0, 42, TIMESTAMP_MAX]
    assert read(pa.array([7], pa.int32())) == [7]
    assert read(pa.array([7], pa.uint64())) == [7]
    assert read(pa.nulls(2)) == [42, 42]
    assert read(pa.array([7, 7]).dictionary_encode()) == [7, 7]


def test_without_the_column_it_is_the_time_of_the_call() -> None:
    piece = pa.RecordBatch.from_arrays([pa.nulls(2)], ["value"])
    assert read_timestamps(piece, 42, 0).to_pylist() == [42, 42]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([None, -2]),
        pa.array([0, 2**63 - 1]),
        pa.array([0, 2**63], pa.uint64()),
        pa.array([0, -1], pa.timestamp("ms")),
        pa.array([0, -1], pa.timestamp("ns")),
        pa.array([0, -(2**63)], pa.timestamp("us")),
        pa.array([0, 2**62], pa.timestamp("s")),
        pa.array([0, -(2**63)], pa.timestamp("s")),
    ],
    ids=lambda column: f"{column.type} {column[1]!r}",
)
def test_a_time_before_1970_or_beyond_63_bits_names_its_row(column: pa.Array) -> None:
    with pytest.raises(BadRowError, match=r"^row 101: the timestamp -?\d+ m?s is before") as caught:
        read(column)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("column", [pa.array(["2020"]), pa.array([1.5]), pa.array([True])])
def test_timestamps_other_types_are_an_error(column: pa.Array) -> None:
    with pytest.raises(ColumnError, match="the column 'timestamp' must be a timestamp or milli"):
        read(column)
