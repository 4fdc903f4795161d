"""Columns of rows that become records: bytes, headers and timestamps, and the errors of bad rows.

Columns of bytes are text or bytes of any width, views, dictionaries and runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from lakelog.base.errors import ErrorCode

if TYPE_CHECKING:
    import pyarrow as pa


class ColumnError(ValueError):
    """A table lacks a column, or has one of a wrong name or type."""


class BadRowError(ValueError):
    """A row that cannot be a record.

    row: its number in the table, from 0. code: the error code that a producer reports.
    """

    def __init__(self, row: int, reason: str, code: ErrorCode) -> None:
        super().__init__(f"row {row}: {reason}")
        self.row = row
        self.reason = reason
        self.code = code

    def __reduce__(self) -> tuple[object, ...]:
        # Spark pickles the errors of its workers.
        return type(self), (self.row, self.reason, self.code)


def lengths(column: pa.Array, name: str) -> pa.Array:
    """Return the bytes of each row as int64, without decoding a dictionary."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_null(kind):
        return pa.repeat(pa.scalar(0, pa.int64()), len(column))
    if pa.types.is_dictionary(kind):
        check_undamaged(column, name)
        sizes = lengths(column.dictionary, name).take(column.indices)
    elif pa.types.is_run_end_encoded(kind):
        # Run ends are expanded by position; the values may be large, the lengths are not.
        runs = pa.RunEndEncodedArray.from_arrays(column.run_ends, lengths(column.values, name))
        sizes = pc.run_end_decode(runs.slice(column.offset, len(column)))
    elif kind in (pa.string_view(), pa.binary_view()):
        sizes = pc.binary_length(as_large_binary(column, name))
    else:
        _check_bytes(kind, name)
        sizes = pc.binary_length(column)
    sizes = sizes.cast(pa.int64())
    return pc.fill_null(sizes, 0) if sizes.null_count else sizes


def as_large_binary(column: pa.Array, name: str) -> pa.Array:
    """Return the column as large_binary. Raises `ColumnError`, also for damaged buffers."""
    import pyarrow as pa

    column = expanded(column)
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), pa.large_binary())
    _check_bytes(column.type, name)
    if column.type in (pa.string_view(), pa.binary_view()):
        check_undamaged(column, name)
    binary = column.cast(pa.large_binary())
    # Encoders trust the ends of each row; text need not be UTF-8.
    check_undamaged(binary, name)
    return binary


def is_plain(kind: pa.DataType) -> bool:
    """Return whether a column of this type holds its bytes in one piece, each once."""
    import pyarrow as pa

    return kind in (pa.binary(), pa.string(), pa.large_binary(), pa.large_string())


def expanded(column: pa.Array) -> pa.Array:
    """Return the column without a dictionary or runs."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        values = without_views(expanded(column.dictionary))
        return pa.DictionaryArray.from_arrays(column.indices, values).dictionary_decode()
    if pa.types.is_run_end_encoded(column.type):
        values = without_views(expanded(column.values))
        runs = pa.RunEndEncodedArray.from_arrays(column.run_ends, values)
        return pc.run_end_decode(runs.slice(column.offset, len(column)))
    return column


def without_views(column: pa.Array) -> pa.Array:
    """Return a column of views in the layout with offsets; Arrow cannot take rows of views."""
    import pyarrow as pa

    if column.type == pa.string_view():
        return column.cast(pa.large_string())
    return column.cast(pa.large_binary()) if column.type == pa.binary_view() else column


def check_undamaged(column: pa.Array, name: str) -> None:
    import pyarrow as pa

    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        raise ColumnError(f"the column {name!r} is damaged: {error}") from None


def _check_bytes(kind: pa.DataType, name: str) -> None:
    import pyarrow as pa

    if kind not in _bytes_types() and not pa.types.is_fixed_size_binary(kind):
        raise ColumnError(f"the column {name!r} must be binary or string, not {kind}")


@cache
def _bytes_types() -> tuple[pa.DataType, ...]:
    import pyarrow as pa

    plain = (pa.binary(), pa.string(), pa.large_binary(), pa.large_string())
    return (*plain, pa.binary_view(), pa.string_view())


HEADER_OVERHEAD = 10
"""An upper bound of the lengths of one header, in bytes."""


@dataclass(slots=True, frozen=True)
class Headers:
    """The headers of all rows, one after the other.

    ends: int64, one more than rows: row n has the headers from `ends[n]` to `ends[n + 1]`. keys,
    values: large_binary; a key is never null.
    """

    ends: pa.Array
    keys: pa.Array
    values: pa.Array


def read_headers(column: pa.Array, start: int) -> Headers:
    """Return the headers of a list of key and value, or of a map; null is no headers.

    start: the number of the first row, for errors. Raises `ColumnError`, and `BadRowError` for a
    header without a key.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    check_undamaged(column, "headers")
    if pa.types.is_null(kind):
        nothing = pa.nulls(0, pa.large_binary())
        return Headers(pa.repeat(pa.scalar(0, pa.int64()), len(column) + 1), nothing, nothing)
    keys_type, values_type = _pair_types(kind)
    if pa.types.is_map(kind):
        column = column.cast(pa.list_(pa.struct([("key", keys_type), ("value", values_type)])))
    counts = pc.fill_null(pc.list_value_length(column).cast(pa.int64()), 0)
    zero = pa.array([0], pa.int64())
    ends = pa.concat_arrays([zero, pc.cumulative_sum(counts)])
    pairs = pc.list_flatten(column)
    keys = pc.struct_field(pairs, "key")
    if keys.null_count:
        pair = pc.index(pc.is_null(keys), True).as_py()
        row = pc.index(pc.greater(ends, pair), True).as_py() - 1
        raise BadRowError(start + row, "a header without a key", ErrorCode.INVALID_RECORD)
    values = as_large_binary(pc.struct_field(pairs, "value"), "headers")
    return Headers(ends, as_large_binary(keys, "headers"), values)


def as_lists(column: pa.Array) -> pa.Array:
    """Return headers in the layout of lists with offsets, from which Arrow can take rows.

    Raises `ColumnError`.
    """
    import pyarrow as pa

    kind = column.type
    if pa.types.is_null(kind):
        return column
    _pair_types(kind)
    text, octets = pa.large_string(), pa.large_binary()
    if pa.types.is_map(kind):
        return column.cast(pa.map_(text, octets))
    pairs = pa.large_list(pa.struct([("key", text), ("value", octets)]))
    # Arrow has no cast for dictionaries of views inside lists.
    return pa.array(column.to_pylist(), pairs) if "dictionary" in str(kind) else column.cast(pairs)


def header_lengths(column: pa.Array, start: int) -> pa.Array:
    """Return the bytes of the headers of each row. `start`: see `read_headers`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    headers = read_headers(column, start)
    overhead = pa.scalar(HEADER_OVERHEAD, pa.int64())
    pair_sizes = pc.add(lengths(headers.keys, "headers"), lengths(headers.values, "headers"))
    sums = pa.concat_arrays(
        [
            pa.array([0], pa.int64()),
            pc.cumulative_sum(pc.add(pair_sizes, overhead)).cast(pa.int64()),
        ]
    ).take(headers.ends)
    return pc.subtract(sums.slice(1), sums.slice(0, len(column)))


def joined_headers(pieces: Sequence[Headers | None]) -> Headers:
    """Return the headers of all pieces, one after the other."""
    import pyarrow as pa
    import pyarrow.compute as pc

    present = [piece for piece in pieces if piece is not None]
    ends, base = [pa.array([0], pa.int64())], 0
    for piece in present:
        ends.append(pc.add(piece.ends.slice(1), base))
        base += len(piece.keys)
    return Headers(
        pa.concat_arrays(ends),
        pa.concat_arrays([piece.keys for piece in present]),
        pa.concat_arrays([piece.values for piece in present]),
    )


def _pair_types(kind: pa.DataType) -> tuple[pa.DataType, pa.DataType]:
    """Return the types of a header's key and value. Raises `ColumnError` for other columns."""
    import pyarrow as pa

    types: tuple[pa.DataType, ...] = ()
    if pa.types.is_map(kind):
        types = kind.key_type, kind.item_type
    elif _is_list(kind) and pa.types.is_struct(kind.value_type):
        pair = kind.value_type
        names = [field.name for field in pair]
        types = tuple(pair.field(name).type for name in ("key", "value") if names.count(name) == 1)
        if len(types) != len(names):
            types = ()
    if len(types) == 2 and _is_text(types[0]):
        return types[0], types[1]
    raise ColumnError(
        f"the column 'headers' must be list<struct<key: string, value: binary>>, not {kind}"
    )


def _is_list(kind: pa.DataType) -> bool:
    import pyarrow.types as types

    return bool(
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_fixed_size_list(kind)
        or types.is_list_view(kind)
        or types.is_large_list_view(kind)
    )


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return kind in (pa.string(), pa.large_string(), pa.string_view())


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
    times = _milliseconds(column, start)
    bounds = pc.min_max(times).as_py()
    if bounds["min"] is not None and not lowest <= bounds["min"] <= bounds["max"] <= TIMESTAMP_MAX:
        wrong = pc.or_(pc.less(times, lowest), pc.greater(times, TIMESTAMP_MAX))
        row = pc.index(pc.fill_null(wrong, False), True).as_py()
        raise _bad_timestamp(start + row, times[row].as_py(), "ms")
    return pc.fill_null(times, now_ms)


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
