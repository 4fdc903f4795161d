"""The column of timestamps."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from lakelog.base.errors import ErrorCode
from lakelog.columns.encoding.binary import expanded
from lakelog.columns.encoding.errors import BadRowError, ColumnError

if TYPE_CHECKING:
    import pyarrow as pa

TIMESTAMP_MAX = (1 << 63) - 2
"""Batches store timestamps as 64-bit differences, even to -1, which stands for none."""


def read_timestamps(piece: pa.RecordBatch, now_ms: int, start: int) -> pa.Array:
    """Return milliseconds: of a timestamp of any unit, or of an integer; null is `now_ms`.

    Raises `BadRowError` for a time before 1970; the integer -1 is no timestamp.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if "timestamp" not in piece.schema.names:
        return _now(now_ms, piece.num_rows)
    column = expanded(piece.column("timestamp"))
    kind, lowest = column.type, 0
    if pa.types.is_integer(kind):
        lowest = -1
    elif not pa.types.is_timestamp(kind) and not pa.types.is_null(kind):
        raise ColumnError(
            f"the column 'timestamp' must be a timestamp or milliseconds in int64, not {kind}"
        )
    found = _milliseconds(column, start)
    bounds = pc.min_max(found).as_py()
    if bounds["min"] is not None and not lowest <= bounds["min"] <= bounds["max"] <= TIMESTAMP_MAX:
        wrong = pc.or_(pc.less(found, lowest), pc.greater(found, TIMESTAMP_MAX))
        row = pc.index(pc.fill_null(wrong, False), True).as_py()
        raise _bad_timestamp(start + row, found[row].as_py(), "ms")
    return pc.fill_null(found, now_ms)


@lru_cache(maxsize=1)
def _now(now_ms: int, count: int) -> pa.Array:
    """Return `now_ms` for each row; the pieces of a table mostly have as many rows each."""
    import pyarrow as pa

    return pa.repeat(pa.scalar(now_ms, pa.int64()), count)


def _milliseconds(column: pa.Array, start: int) -> pa.Array:
    """Return int64; a finer unit is rounded down. Raises `BadRowError` for an overflow."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if not pa.types.is_timestamp(kind):
        largest = pa.scalar((1 << 63) - 1, pa.uint64())
        if kind == pa.uint64() and pc.any(wide := pc.greater(column, largest)).as_py():
            row = pc.index(pc.fill_null(wide, False), True).as_py()
            raise _bad_timestamp(start + row, column[row].as_py(), "ms")
        return column.cast(pa.int64())
    numbers = column.cast(pa.int64())
    if kind.unit == "s":
        limit = ((1 << 63) - 1) // 1000
        wide = pc.or_(pc.less(numbers, -limit), pc.greater(numbers, limit))
        if pc.any(wide).as_py():
            row = pc.index(pc.fill_null(wide, False), True).as_py()
            raise _bad_timestamp(start + row, numbers[row].as_py(), "s")
        return pc.multiply(numbers, 1000)
    return _floor_divided(numbers, {"ms": 1, "us": 1000, "ns": 1_000_000}[kind.unit])


def _floor_divided(numbers: pa.Array, by: int) -> pa.Array:
    """Return the quotient, rounded down: a time before 1970 stays before it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if by == 1:
        return numbers
    rest_is_negative = pc.less(pc.subtract(numbers, pc.multiply(pc.divide(numbers, by), by)), 0)
    return pc.subtract(pc.divide(numbers, by), rest_is_negative.cast(pa.int64()))


def _bad_timestamp(row: int, number: int, unit: str) -> BadRowError:
    text = f"the timestamp {number} {unit} is before 1970 or has more than 63 bits"
    return BadRowError(row, text, ErrorCode.INVALID_TIMESTAMP)
