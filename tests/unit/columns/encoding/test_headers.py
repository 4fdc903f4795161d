from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lakelog.columns.encoding.errors import BadRowError, ColumnError
from lakelog.columns.encoding.headers import header_lengths, joined_headers, read_headers

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
def test_other_types_are_an_error(kind: pa.DataType) -> None:
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
