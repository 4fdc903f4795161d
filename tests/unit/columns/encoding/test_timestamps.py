from __future__ import annotations

import pyarrow as pa
import pytest

from lakelog.base.errors import ErrorCode
from lakelog.columns.encoding.errors import BadRowError, ColumnError
from lakelog.columns.encoding.timestamps import TIMESTAMP_MAX, read_timestamps


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
def test_other_types_are_an_error(column: pa.Array) -> None:
    with pytest.raises(ColumnError, match="the column 'timestamp' must be a timestamp or milli"):
        read(column)
