"""The compiled loop behind `lakelog.client.arrow`.

One pass over the records of a batch copies keys and values into the buffers that Arrow will use.
Numba compiles it once (seconds) and keeps the result on disk: beside this file, or in the user's
cache if that cannot be written. Importing this module needs Numba.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numba.extending
import numpy as np

from lakelog.client.arrow_loop import CORRUPT, copy, number_at, scan
from lakelog.records.batch import BatchHeader, CorruptRecord, read_header
from lakelog.records.builder import BatchBuilder
from lakelog.records.record import read_headers, record_view
from lakelog.runtime.api import Buffer

if TYPE_CHECKING:
    import pyarrow as pa

_MICROSECONDS = 1000
_BINARY_MAX = 2**31 - 1


class CompiledDecoder:
    """Compiles on creation, or loads what was compiled; then tries itself on one record."""

    def __init__(self) -> None:
        for part in (copy, number_at):
            numba.extending.register_jitable(part)
        self._scan = numba.njit(cache=True, nogil=True)(scan)
        self._check()

    def decode(
        self,
        rows: list[tuple[BatchHeader, Buffer]],
        start: int,
        end: int,
        headers: bool,
        max_bytes: int,
    ) -> pa.RecordBatch:
        """See `arrow.decode_columns`."""
        contents = [record_view(batch, header, max_bytes) for header, batch in rows]
        columns = _Columns(
            sum(header.records_count for header, _ in rows), sum(map(len, contents)), headers
        )
        for (header, _), data in zip(rows, contents, strict=True):
            self._add(columns, header, data, start, end)
        return columns.to_batch()

    def _add(
        self, columns: _Columns, header: BatchHeader, data: Buffer, start: int, end: int
    ) -> None:
        first = columns.rows
        state = self._scan(
            np.frombuffer(data, np.uint8),
            header.records_count,
            header.last_offset_delta,
            header.base_offset,
            header.base_timestamp,
            start,
            end,
            columns.offsets,
            columns.timestamps,
            columns.key_ends,
            columns.key_nulls,
            columns.keys,
            columns.value_ends,
            columns.value_nulls,
            columns.values,
            columns.header_starts,
            columns.header_stops,
            first,
        )
        if state == CORRUPT:
            raise CorruptRecord("a record of the batch is inconsistent")
        columns.rows = state
        columns.types[first:state] = header.timestamp_type
        if header.timestamp_type:
            columns.timestamps[first:state] = header.max_timestamp
        columns.add_headers(data, first)

    def _check(self) -> None:
        """A failure to compile should come here and not in the middle of a read."""
        builder = BatchBuilder()
        builder.append(7, b"key", b"value")
        batch = builder.build(base_offset=3)
        row = self.decode([(read_header(batch), batch)], 0, 9, False, 1 << 20).to_pylist()[0]
        assert (row["offset"], row["key"], row["value"]) == (3, b"key", b"value")


class _Columns:
    """The buffers being filled, of the largest size they can need."""

    def __init__(self, count: int, size: int, with_headers: bool) -> None:
        if size > _BINARY_MAX:
            raise OverflowError("the keys and values of one call must stay below 2 GiB")
        self.rows = 0
        self.with_headers = with_headers
        self.offsets: Any = np.empty(count, np.int64)
        self.timestamps: Any = np.empty(count, np.int64)
        self.types: Any = np.empty(count, np.int32)
        self.key_ends: Any = np.zeros(count + 1, np.int32)
        self.key_nulls: Any = np.zeros(count, np.uint8)
        self.keys: Any = np.empty(size, np.uint8)
        self.value_ends: Any = np.zeros(count + 1, np.int32)
        self.value_nulls: Any = np.zeros(count, np.uint8)
        self.values: Any = np.empty(size, np.uint8)
        self.header_starts: Any = np.full(count, -1, np.int64)
        self.header_stops: Any = np.empty(count, np.int64)
        self._headers: list[list[dict[str, Any]] | None] = []

    def add_headers(self, data: Buffer, first: int) -> None:
        """Decodes the headers of the rows from `first` on; they are rare, so in Python. Always
        done, so that damaged ones are refused whether they are wanted or not."""
        starts = self.header_starts[first : self.rows]
        if starts.max(initial=-1) < 0:
            self._headers += [None] * (len(starts) if self.with_headers else 0)
            return
        stops = self.header_stops[first : self.rows]
        content = bytes(data)
        found: list[list[dict[str, Any]] | None] = [None] * len(starts)
        for index in np.flatnonzero(starts >= 0):
            stop = int(stops[index])
            try:
                pairs, position = read_headers(content, int(starts[index]), stop)
            except (IndexError, UnicodeDecodeError):
                raise CorruptRecord("a record header is inconsistent") from None
            if position != stop:
                raise CorruptRecord("a record does not end where its headers do")
            found[index] = [{"key": key, "value": value} for key, value in pairs]
        self._headers += found

    def to_batch(self) -> pa.RecordBatch:
        import pyarrow as pa

        from lakelog.client.arrow import to_batch

        rows = self.rows
        micros = self.timestamps[:rows] * _MICROSECONDS
        columns: dict[str, Any] = {
            "offset": pa.array(self.offsets[:rows]),
            "timestamp": pa.array(micros, pa.int64()).cast(pa.timestamp("us", tz="UTC")),
            "timestampType": pa.array(self.types[:rows]),
            "key": _binary(self.keys, self.key_ends, self.key_nulls, rows),
            "value": _binary(self.values, self.value_ends, self.value_nulls, rows),
        }
        if self.with_headers:
            columns["headers"] = self._headers
        return to_batch(columns, headers=self.with_headers)


def _binary(data: Any, ends: Any, nulls: Any, rows: int) -> pa.Array:
    import pyarrow as pa

    used = nulls[:rows]
    null_count = int(used.sum())
    valid = pa.py_buffer(np.packbits(used == 0, bitorder="little")) if null_count else None
    buffers = [valid, pa.py_buffer(ends[: rows + 1]), pa.py_buffer(data[: int(ends[rows])])]
    return pa.Array.from_buffers(pa.binary(), rows, buffers, null_count)
