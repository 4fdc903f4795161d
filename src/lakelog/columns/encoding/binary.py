"""Columns of bytes: text or bytes of any width, views, dictionaries and runs."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from lakelog.columns.encoding.errors import ColumnError

if TYPE_CHECKING:
    import pyarrow as pa


def lengths(column: pa.Array, name: str) -> pa.Array:
    """Return the bytes of each row as int64, without decoding a dictionary."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_null(kind):
        return pa.repeat(pa.scalar(0, pa.int64()), len(column))
    if pa.types.is_dictionary(kind):
        check_undamaged(column, name)
        found = lengths(column.dictionary, name).take(column.indices)
    elif pa.types.is_run_end_encoded(kind):
        # Run ends are expanded by position; the values may be large, the lengths are not.
        runs = pa.RunEndEncodedArray.from_arrays(column.run_ends, lengths(column.values, name))
        found = pc.run_end_decode(runs.slice(column.offset, len(column)))
    elif kind in (pa.string_view(), pa.binary_view()):
        found = pc.binary_length(as_large_binary(column, name))
    else:
        _check_bytes(kind, name)
        found = pc.binary_length(column)
    found = found.cast(pa.int64())
    return pc.fill_null(found, 0) if found.null_count else found


def as_large_binary(column: pa.Array, name: str) -> pa.Array:
    """Return the column as large_binary. Raises `ColumnError`, also for damaged buffers."""
    import pyarrow as pa

    column = expanded(column)
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), pa.large_binary())
    _check_bytes(column.type, name)
    if column.type in (pa.string_view(), pa.binary_view()):
        check_undamaged(column, name)
    found = column.cast(pa.large_binary())
    # Encoders trust the ends of each row; text need not be UTF-8.
    check_undamaged(found, name)
    return found


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
