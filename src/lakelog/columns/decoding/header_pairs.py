"""The headers that the compiled loops have found, as a column. Importing this needs NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from lakelog.columns.decoding.groups import column_types
from lakelog.records.utf8 import decode_text

if TYPE_CHECKING:
    import pyarrow as pa


class HeaderPairs:
    """Collects the headers of the batches of one group.

    count, copy: `loop.count_headers` and `loop.copy_headers`, compiled.
    """

    def __init__(self, count: Callable[..., int], copy: Callable[..., None]) -> None:
        self._count = count
        self._copy = copy
        self._counts: list[Any] = []
        self._keys: list[pa.Array] = []
        self._values: list[pa.Array] = []

    def add(self, data: Any, starts: Any, stops: Any) -> None:
        """Add the headers of one batch. starts, stops: of the headers of each row, in bytes."""
        counts = np.zeros(len(starts), np.int32)
        self._counts.append(counts)
        total = self._count(data, starts, stops, counts)
        if not total:
            return
        size = int((stops - starts)[starts >= 0].sum())
        key_ends, value_ends = np.zeros((2, total + 1), np.int32)
        keys, values = np.empty((2, size), np.uint8)
        nulls = np.zeros(total, np.uint8)
        self._copy(data, starts, stops, key_ends, keys, value_ends, nulls, values)
        self._keys.append(_texts(binary(keys, key_ends, nulls[:0], total)))
        self._values.append(binary(values, value_ends, nulls, total))

    def column(self) -> pa.Array:
        """Return the headers of all rows; null for rows without any."""
        import pyarrow as pa

        kind = column_types()["headers"]
        counts = np.concatenate([np.zeros(1, np.int32), *self._counts])
        if not self._keys:
            return pa.nulls(len(counts) - 1, kind)
        pairs = [pa.concat_arrays(self._keys), pa.concat_arrays(self._values)]
        inside = pa.StructArray.from_arrays(pairs, fields=list(kind.value_type))
        ends = pa.array(np.cumsum(counts, dtype=np.int32))
        is_null = pa.array(counts[1:] == 0)
        return pa.ListArray.from_arrays(ends, inside, type=kind, mask=is_null)


def binary(data: Any, ends: Any, nulls: Any, rows: int) -> pa.Array:
    """Return a binary column of NumPy arrays. nulls: 1 for null; empty if no row is null."""
    import pyarrow as pa

    used = nulls[:rows]
    null_count = int(used.sum())
    valid = pa.py_buffer(np.packbits(used == 0, bitorder="little")) if null_count else None
    buffers = [valid, pa.py_buffer(ends[: rows + 1]), pa.py_buffer(data[: int(ends[rows])])]
    return pa.Array.from_buffers(pa.binary(), rows, buffers, null_count)


def _texts(keys: pa.Array) -> pa.Array:
    """Return the keys as strings, with U+FFFD in place of invalid UTF-8."""
    import pyarrow as pa

    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([decode_text(key) for key in keys.to_pylist()], pa.string())
