"""The compiled loops behind `lakelog.columns.encoding.encode`. Importing this needs Numba."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from lakelog.base.murmur2 import partition_for_key
from lakelog.columns.compiler import compiled, empty, first_call
from lakelog.columns.encoding import loop
from lakelog.columns.encoding.columns import Headers
from lakelog.columns.encoding.rows import EncodedBatch, Rows
from lakelog.records.batch import HEADER_SIZE
from lakelog.records.compression import Codec

_PARTS: list[Any] = [
    loop.long_number_size,
    loop.number_size,
    loop.short_varint,
    loop.put_number,
    loop.put_bytes,
    loop.partition_of_key,
    loop.size_at,
    loop.headers_size,
    loop.put_headers,
    loop.body_size,
]


class CompiledEncoder:
    """Compiles the loops on creation, or loads them from the cache, and tests them on one row.

    with_headers: whether the rows have headers. Few have, and these parts take as long to compile
    as all others. Raises whatever Numba or the test raises.
    """

    def __init__(self, *, with_headers: bool) -> None:
        self._plan, self._write = compiled(
            [loop.plan, loop.write], _PARTS, copy=loop.copy, put_word=loop.put_word
        )
        self._with_headers = with_headers
        first_call([self._plan, self._write], self._check)

    def encode(
        self, rows: Rows, partitions: int, sticky: int, batch_bytes: int, codec: Codec
    ) -> tuple[list[EncodedBatch], int]:
        """Return the batches of the rows and the next sticky partition, equal to plain Python's."""
        columns = _Columns(rows)
        batch_of, bodies, partition_of, counts = (empty(rows.count, np.int32) for _ in range(4))
        sizes, base_times, newest_times = (empty(rows.count, np.int64) for _ in range(3))
        count, sticky = self._plan(
            rows.count,
            *columns.key,
            *columns.value[:2],
            columns.header_ends,
            columns.header_key[0],
            *columns.header_value[:2],
            columns.timestamps,
            columns.partitions,
            partitions,
            sticky,
            batch_bytes,
            np.full(partitions, -1, np.int32),
            batch_of,
            partition_of,
            counts,
            sizes,
            base_times,
            newest_times,
            bodies,
        )
        ends = np.cumsum(sizes[:count])
        # All batches share one buffer, of exactly the planned size and a word more.
        out = empty(int(ends[-1]) + loop.WORD, np.uint8)
        positions = ends - sizes[:count] + HEADER_SIZE
        self._write(
            rows.count,
            *columns.key,
            *columns.value,
            columns.header_ends,
            columns.header_key[0],
            columns.header_key[2],
            *columns.header_value,
            columns.timestamps,
            batch_of,
            bodies,
            base_times,
            np.zeros(count, np.int32),
            positions,
            out,
        )
        assert (positions == ends).all(), "each batch has the planned size"
        view = out.data
        planned = zip(
            (ends - sizes[:count]).tolist(),
            ends.tolist(),
            *(of[:count].tolist() for of in (partition_of, counts, base_times, newest_times)),
            strict=True,
        )
        batches = [EncodedBatch(view[start:end], codec, *rest) for start, end, *rest in planned]
        return batches, int(sticky)

    def _check(self) -> None:
        """Encode one row, so that a failure to compile happens here and not during a write."""
        binary, number = pa.large_binary(), pa.int64()
        headers = None
        if self._with_headers:
            ends, keys = pa.array([0, 1], number), pa.array([b"h"], binary)
            headers = Headers(ends, keys, pa.nulls(1, binary))
        rows = Rows(
            1,
            pa.array([b"key"], binary),
            pa.array([b"value"], binary),
            headers,
            pa.array([7], number),
            pa.nulls(1, pa.int32()),
            8,
        )
        [batch], _ = self.encode(rows, 9, 0, 1 << 20, Codec.NONE)
        assert batch.partition == partition_for_key(b"key", 9)
        record = b"\x22\0\0\0\x06key\x0avalue\x02\x02h\x01"
        if not self._with_headers:
            record = b"\x1c\0\0\0\x06key\x0avalue\0"
        assert bytes(batch.build()[61:]) == record


class _Columns:
    """The buffers of the rows as NumPy arrays: ends, nulls and data of each binary column."""

    def __init__(self, rows: Rows) -> None:
        self.key = _binary(rows.keys)
        self.value = _binary(rows.values)
        headers = rows.headers
        # Without headers, the loops are compiled without the parts that write them.
        self.header_ends = None if headers is None else _numbers(headers.ends)
        nothing = (None, None, None)
        self.header_key = nothing if headers is None else _binary(headers.keys)
        self.header_value = nothing if headers is None else _binary(headers.values)
        self.timestamps = _numbers(rows.timestamps)
        self.partitions = _NO_NUMBERS
        if rows.partitions is not None:
            self.partitions = _numbers(rows.partitions.fill_null(loop.NO_PARTITION))


def _binary(column: pa.Array | None) -> tuple[Any, Any, Any]:
    """Return ends, nulls and data of a large_binary column; all empty if there is none."""
    if column is None:
        return _NO_ENDS, _NO_BYTES, _NO_BYTES
    _, ends, data = column.buffers()
    first, count = column.offset, len(column)
    offsets = np.frombuffer(ends, np.int64)[first : first + count + 1] if count else _ONE_END
    nulls = _numbers(column.is_null().cast(pa.uint8())) if column.null_count else _NO_BYTES
    return (
        _read_only(offsets),
        nulls,
        _read_only(np.frombuffer(data, np.uint8)) if data else _NO_BYTES,
    )


def _numbers(column: pa.Array) -> Any:
    return _read_only(column.to_numpy())


def _read_only(array: Any) -> Any:
    """Return an array that cannot be written: arrays that can would need another compilation."""
    array.flags.writeable = False
    return array


_NO_ENDS = _read_only(np.empty(0, np.int64))
_ONE_END = _read_only(np.zeros(1, np.int64))
_NO_BYTES = _read_only(np.empty(0, np.uint8))
_NO_NUMBERS = _read_only(np.empty(0, np.int32))
