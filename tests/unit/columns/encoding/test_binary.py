from __future__ import annotations

import pyarrow as pa
import pytest

from lakelog.columns.encoding.binary import as_large_binary, lengths
from lakelog.columns.encoding.errors import ColumnError

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
