"""The compiled loop behind `lakelog.columns.decoding.decode`.

One pass over the records of a batch copies keys and values into the buffers that Arrow will use.
Importing this module needs Numba.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np

from lakelog.columns.compiler import compiled, first_call
from lakelog.columns.decoding.groups import Group, column_types, corrupt
from lakelog.columns.decoding.loop import (
    CORRUPT,
    copy,
    headers_end,
    number_at,
    record_at,
    scan,
)
from lakelog.records.batch import BatchHeader, read_header
from lakelog.records.builder import BatchBuilder
from lakelog.records.errors import CorruptRecord
from lakelog.records.record import Headers, read_headers, read_records, record_view
from lakelog.runtime.api import Buffer

if TYPE_CHECKING:
    import pyarrow as pa

    from lakelog.columns.decoding.groups import RawColumns


class CompiledDecoder:
    """Compiles the loop on creation, or loads it from the cache, and tests it on one record.

    Raises whatever Numba or the test raises.
    """

    def __init__(self) -> None:
        [self._scan] = compiled([scan], [number_at, headers_end, record_at], copy)
        first_call([self._scan], self._check)

    def decode(self, group: Group, columns: Collection[str], start: int, end: int) -> RawColumns:
        """Return the columns of `group`, equal to plain Python's. Raises `CorruptRecord`."""
        buffers = _Buffers(group, columns)
        for header, data in group.batches:
            self._add(buffers, header, data, start, end)
        return buffers.to_arrays()

    def _add(
        self, buffers: _Buffers, header: BatchHeader, data: Buffer, start: int, end: int
    ) -> None:
        first = buffers.rows
        state = self._scan(
            np.frombuffer(memoryview(data).toreadonly(), np.uint8),
            header.records_count,
            header.last_offset_delta,
            header.base_offset,
            header.base_timestamp,
            start,
            end,
            buffers.offsets,
            buffers.timestamps,
            buffers.key_ends,
            buffers.key_nulls,
            buffers.keys,
            buffers.value_ends,
            buffers.value_nulls,
            buffers.values,
            buffers.header_starts,
            buffers.header_stops,
            first,
        )
        if state == CORRUPT:
            raise corrupt(header, _reason(header, data))
        buffers.added(header, data, state)

    def _check(self) -> None:
        """Decode one record, so that a failure to compile happens here and not during a read."""
        builder = BatchBuilder()
        builder.append(7, b"key", b"value", [("h", b"x")])
        batch = builder.build(base_offset=3)
        header = read_header(batch)
        group = Group()
        group.add(header, record_view(batch, header, 1 << 20))
        raw = self.decode(group, column_types(), 0, 9)
        found = [raw[name].to_pylist() for name in ("offset", "timestamp", "key", "value")]
        assert found == [[3], [7], [b"key"], [b"value"]]


def _reason(header: BatchHeader, data: Buffer) -> CorruptRecord:
    """Return the error of the plain decoder, which states the reason."""
    try:
        read_records(bytes(data), header)
    except CorruptRecord as error:
        return error
    raise AssertionError("the compiled loop rejects a batch that plain Python accepts")


class _Buffers:
    """The output arrays of one group, allocated at their largest possible size."""

    def __init__(self, group: Group, columns: Collection[str]) -> None:
        count = group.rows_max
        self.columns = columns
        self.rows = 0

        def empty(name: str, size: int, kind: Any) -> Any:
            return np.empty(size if name in columns else 0, kind)

        self.offsets: Any = np.empty(count, np.int64)
        self.timestamps = empty("timestamp", count, np.int64)
        self.types = empty("timestampType", count, np.int32)
        self.key_ends, self.value_ends = (
            empty(name, count + 1, np.int32) for name in ("key", "value")
        )
        self.key_ends[:1] = self.value_ends[:1] = 0
        self.key_nulls, self.value_nulls = (
            empty(name, count, np.uint8) for name in ("key", "value")
        )
        self.keys, self.values = (
            empty(name, group.size_bytes, np.uint8) for name in ("key", "value")
        )
        self.header_starts, self.header_stops = (
            empty("headers", count, np.int64) for _ in range(2)
        )
        self._headers: dict[int, Headers] = {}

    def added(self, header: BatchHeader, data: Buffer, rows: int) -> None:
        """Complete the rows up to `rows`, which the loop appended from this batch."""
        first, self.rows = self.rows, rows
        self.types[first:rows] = header.timestamp_type
        if header.timestamp_type:
            self.timestamps[first:rows] = header.max_timestamp
        if "headers" in self.columns:
            self._add_headers(data, first)

    def _add_headers(self, data: Buffer, first: int) -> None:
        """Decode the headers of the rows from `first` on, whose bounds the loop has checked."""
        rows = np.flatnonzero(self.header_starts[first : self.rows] >= 0) + first
        content = bytes(data) if len(rows) else b""
        for row in rows.tolist():
            start, stop = int(self.header_starts[row]), int(self.header_stops[row])
            self._headers[row] = read_headers(content, start, stop)[0]

    def to_arrays(self) -> RawColumns:
        import pyarrow as pa

        rows = self.rows
        raw = {"offset": pa.array(self.offsets[:rows])}
        if "timestamp" in self.columns:
            raw["timestamp"] = pa.array(self.timestamps[:rows])
        if "timestampType" in self.columns:
            raw["timestampType"] = pa.array(self.types[:rows])
        if "key" in self.columns:
            raw["key"] = _binary(self.keys, self.key_ends, self.key_nulls, rows)
        if "value" in self.columns:
            raw["value"] = _binary(self.values, self.value_ends, self.value_nulls, rows)
        if "headers" in self.columns:
            raw["headers"] = self._header_column()
        return raw

    def _header_column(self) -> pa.Array:
        """Return the headers; null for rows without any. Python handles only the other rows."""
        import pyarrow as pa

        kind = column_types()["headers"]
        if not self._headers:
            return pa.nulls(self.rows, kind)
        counts = np.zeros(self.rows + 1, np.int32)
        counts[[row + 1 for row in self._headers]] = [len(each) for each in self._headers.values()]
        pairs = [pair for each in self._headers.values() for pair in each]
        keys, values = [key for key, _ in pairs], [value for _, value in pairs]
        inside = pa.StructArray.from_arrays(
            [pa.array(keys, pa.string()), pa.array(values, pa.binary())],
            fields=list(kind.value_type),
        )
        is_null = pa.array(counts[1:] == 0)
        ends = pa.array(np.cumsum(counts, dtype=np.int32))
        return pa.ListArray.from_arrays(ends, inside, type=kind, mask=is_null)


def _binary(data: Any, ends: Any, nulls: Any, rows: int) -> pa.Array:
    import pyarrow as pa

    used = nulls[:rows]
    null_count = int(used.sum())
    valid = pa.py_buffer(np.packbits(used == 0, bitorder="little")) if null_count else None
    buffers = [valid, pa.py_buffer(ends[: rows + 1]), pa.py_buffer(data[: int(ends[rows])])]
    return pa.Array.from_buffers(pa.binary(), rows, buffers, null_count)
