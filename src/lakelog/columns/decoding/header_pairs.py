"""The headers that the compiled loops have found, as a column. Importing this needs NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from lakelog.columns.buffers import binary, empty, numbers
from lakelog.columns.decoding.groups import column_types
from lakelog.records.utf8 import decode_text

if TYPE_CHECKING:
    import pyarrow as pa


def header_column(
    count: Callable[..., int],
    copy: Callable[..., None],
    batches: Any,
    row_ends: Any,
    starts: Any,
    stops: Any,
) -> pa.Array:
    """Return the headers of all rows; null for rows without any.

    count, copy: `loop.count_headers` and `loop.copy_headers`, compiled. batches: the table of the
    batches. row_ends, starts, stops: as `loop.scan` has noted them.
    """
    import pyarrow as pa

    kind, rows = column_types()["headers"], len(starts)
    ends = np.zeros(rows + 1, np.int32)
    counts = ends[1:]
    total = count(batches, row_ends, starts, stops, counts)
    if not total:
        return pa.nulls(rows, kind)
    bits = np.packbits(counts == 0, bitorder="little")
    is_null = pa.Array.from_buffers(pa.bool_(), rows, [None, pa.py_buffer(bits)])
    np.cumsum(counts, out=counts)
    size = int((stops - starts)[starts >= 0].sum())
    key_ends, value_ends = np.zeros((2, total + 1), np.int32)
    keys, values = empty(size, np.uint8), empty(size, np.uint8)
    nulls = np.zeros(total, np.uint8)
    copy(batches, row_ends, starts, stops, key_ends, keys, value_ends, nulls, values)
    pairs = [
        _texts(binary(keys, key_ends, nulls[:0], total)),
        binary(values, value_ends, nulls, total),
    ]
    inside = pa.StructArray.from_arrays(pairs, fields=list(kind.value_type))
    return pa.ListArray.from_arrays(
        numbers(ends, pa.int32(), rows + 1), inside, type=kind, mask=is_null
    )


def _texts(keys: pa.Array) -> pa.Array:
    """Return the keys as strings, with U+FFFD in place of invalid UTF-8."""
    import pyarrow as pa

    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([decode_text(key) for key in keys.to_pylist()], pa.string())
