"""Memory that loops fill and Arrow then owns. Importing this needs NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa


def empty(count: int, kind: Any) -> Any:
    """Return an array of `count` numbers, whose values are undefined.

    Arrow's allocator keeps memory that was freed a moment ago. Fresh pages of the kernel would cost
    as much time as the decoding.
    """
    import pyarrow as pa

    return np.frombuffer(pa.allocate_buffer(count * np.dtype(kind).itemsize), kind)


def numbers(array: Any, kind: pa.DataType, rows: int) -> pa.Array:
    """Return the first `rows` numbers of a NumPy array as a column without nulls.

    `pa.array` would import pandas, if it is installed, which takes as long as decoding ten million
    records.
    """
    import pyarrow as pa

    assert kind.bit_width == 8 * array.itemsize, "the type states the size of the numbers"
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(array[:rows])], 0)


def binary(data: Any, ends: Any, nulls: Any, rows: int) -> pa.Array:
    """Return a binary column of NumPy arrays. nulls: 1 for null; empty if no row is null."""
    import pyarrow as pa

    used = nulls[:rows]
    null_count = int(np.count_nonzero(used))
    valid = pa.py_buffer(np.packbits(used == 0, bitorder="little")) if null_count else None
    buffers = [valid, pa.py_buffer(ends[: rows + 1]), pa.py_buffer(data[: int(ends[rows])])]
    return pa.Array.from_buffers(pa.binary(), rows, buffers, null_count)
