from __future__ import annotations

import numpy as np
import pyarrow as pa

from lakelog.columns.buffers import binary, empty, numbers


def test_nulls_and_empty_items_differ() -> None:
    data, ends = np.frombuffer(b"abcd", np.uint8), np.array([0, 3, 3, 3, 4], np.int32)
    column = binary(data, ends, np.array([0, 0, 1, 0], np.uint8), 4)
    assert column.to_pylist() == [b"abc", b"", None, b"d"]
    assert binary(data, ends, np.zeros(4, np.uint8), 2).to_pylist() == [b"abc", b""]
    assert binary(data, ends, np.zeros(0, np.uint8), 4).null_count == 0


def test_memory_is_arrows_and_returns_to_it() -> None:
    before = pa.total_allocated_bytes()
    array = empty(1000, np.int64)
    array[:] = 7
    assert (array.shape, array.dtype) == ((1000,), np.int64)
    assert pa.total_allocated_bytes() - before >= 8000
    del array
    assert pa.total_allocated_bytes() == before
    assert len(empty(0, np.int32)) == 0


def test_numbers_are_the_first_rows_without_a_copy() -> None:
    array = np.array([5, 6, 7], np.int32)
    column = numbers(array, pa.int32(), 2)
    assert (column.to_pylist(), column.null_count) == ([5, 6], 0)
    assert column.buffers()[1].address == array.ctypes.data
