"""The column of headers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakelog.base.errors import ErrorCode
from lakelog.columns.encoding.binary import as_large_binary, check_undamaged, lengths
from lakelog.columns.encoding.errors import BadRowError, ColumnError

if TYPE_CHECKING:
    import pyarrow as pa

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
        place = pc.index(pc.is_null(keys), True).as_py()
        row = pc.index(pc.greater(ends, place), True).as_py() - 1
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
    each = pc.add(lengths(headers.keys, "headers"), lengths(headers.values, "headers"))
    sums = pa.concat_arrays(
        [pa.array([0], pa.int64()), pc.cumulative_sum(pc.add(each, overhead)).cast(pa.int64())]
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

    found: tuple[pa.DataType, ...] = ()
    if pa.types.is_map(kind):
        found = kind.key_type, kind.item_type
    elif _is_list(kind) and pa.types.is_struct(kind.value_type):
        pair = kind.value_type
        names = [field.name for field in pair]
        found = tuple(pair.field(name).type for name in ("key", "value") if names.count(name) == 1)
        if len(found) != len(names):
            found = ()
    if len(found) == 2 and _is_text(found[0]):
        return found[0], found[1]
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
