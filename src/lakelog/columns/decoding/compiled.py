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
from lakelog.columns.decoding.header_pairs import HeaderPairs, binary
from lakelog.columns.decoding.loop import (
    CORRUPT,
    copy,
    copy_headers,
    count_headers,
    headers_end,
    number_at,
    record_at,
    scan,
)
from lakelog.records.batch import BatchHeader, read_header
from lakelog.records.builder import BatchBuilder
from lakelog.records.errors import CorruptRecord
from lakelog.records.record import read_records, record_view
from lakelog.runtime.api import Buffer

if TYPE_CHECKING:
    from lakelog.columns.decoding.groups import RawColumns


class CompiledDecoder:
    """Compiles the loop on creation, or loads it from the cache, and tests it on one record.

    Raises whatever Numba or the test raises.
    """

    def __init__(self) -> None:
        loops: list[Any] = [scan, count_headers, copy_headers]
        self._loops = compiled(loops, [number_at, headers_end, record_at], copy)
        first_call(self._loops, self._check)

    def decode(self, group: Group, columns: Collection[str], start: int, end: int) -> RawColumns:
        """Return the columns of `group`, equal to plain Python's. Raises `CorruptRecord`."""
        buffers = _Buffers(group, columns)
        headers = HeaderPairs(*self._loops[1:])
        for header, data in group.batches:
            records = np.frombuffer(memoryview(data).toreadonly(), np.uint8)
            first = buffers.rows
            if self._scan(buffers, header, records, start, end) == CORRUPT:
                raise corrupt(header, _reason(header, data))
            if "headers" in columns:
                added = slice(first, buffers.rows)
                headers.add(records, buffers.header_starts[added], buffers.header_stops[added])
        found = buffers.to_arrays()
        return {**found, "headers": headers.column()} if "headers" in columns else found

    def _scan(
        self, buffers: _Buffers, header: BatchHeader, records: Any, start: int, end: int
    ) -> int:
        """Add the records to the buffers; return their new number of rows, or `CORRUPT`."""
        state = self._loops[0](
            records,
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
            buffers.rows,
        )
        if state != CORRUPT:
            buffers.added(header, state)
        return int(state)

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
        assert raw["headers"].to_pylist() == [[{"key": "h", "value": b"x"}]]


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

    def added(self, header: BatchHeader, rows: int) -> None:
        """Complete the rows up to `rows`, which the loop appended from this batch."""
        first, self.rows = self.rows, rows
        self.types[first:rows] = header.timestamp_type
        if header.timestamp_type:
            self.timestamps[first:rows] = header.max_timestamp

    def to_arrays(self) -> RawColumns:
        import pyarrow as pa

        rows = self.rows
        raw = {"offset": pa.array(self.offsets[:rows])}
        if "timestamp" in self.columns:
            raw["timestamp"] = pa.array(self.timestamps[:rows])
        if "timestampType" in self.columns:
            raw["timestampType"] = pa.array(self.types[:rows])
        if "key" in self.columns:
            raw["key"] = binary(self.keys, self.key_ends, self.key_nulls, rows)
        if "value" in self.columns:
            raw["value"] = binary(self.values, self.value_ends, self.value_nulls, rows)
        return raw
