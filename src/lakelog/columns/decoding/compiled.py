"""The compiled loops behind `lakelog.columns.decoding.decode`.

One pass over the records of a group copies keys and values into the buffers that Arrow will use.
The headers that it has found become a column. Importing this module needs Numba.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lakelog.columns.compiler import binary, compiled, empty, first_call, numbers
from lakelog.columns.decoding.groups import (
    TIMESTAMP_MAX_MS,
    TIMESTAMP_MIN_MS,
    Group,
    column_types,
    corrupt,
)
from lakelog.columns.decoding.loop import (
    CORRUPT,
    copy,
    copy_headers,
    count_headers,
    headers_end,
    number_at,
    record_at,
    scan,
    short_number,
    short_record_at,
    view_at,
    word_at,
)
from lakelog.records.batch import BatchHeader, CorruptRecord, read_header
from lakelog.records.builder import BatchBuilder
from lakelog.records.record import decode_text, read_records, record_view
from lakelog.runtime.api import Buffer

if TYPE_CHECKING:
    from lakelog.columns.decoding.groups import RawColumns


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
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([decode_text(key) for key in keys.to_pylist()], pa.string())


class CompiledDecoder:
    """Compiles the loops on creation, or loads them from the cache, and tests them on one record.

    with_headers: whether headers can be decoded. Few readers need them, and their loops take as
    long to compile as all others. Raises whatever Numba or the test raises.
    """

    def __init__(self, *, with_headers: bool) -> None:
        loops: list[Any] = [scan, count_headers, copy_headers] if with_headers else [scan]
        parts: list[Any] = [short_number, short_record_at, number_at, headers_end, record_at]
        self._loops = compiled(
            loops, parts, inlined=True, copy=copy, view_at=view_at, word_at=word_at
        )
        self._with_headers = with_headers
        first_call(self._loops, self._check)

    def decode(self, group: Group, columns: Collection[str], start: int, end: int) -> RawColumns:
        """Return the columns of `group`, equal to plain Python's. Raises `CorruptRecord`."""
        kept, batches = _table(group)
        buffers = _Buffers(group, columns)
        row_ends = np.empty(len(batches), np.int64)
        rows = self._loops[0](batches, start, end, *buffers.arrays(), row_ends)
        if rows <= CORRUPT:
            header, data = group.batches[CORRUPT - rows]
            raise corrupt(header, _reason(header, data))
        decoded = buffers.to_columns(rows)
        if "headers" in columns:
            _, count, copy_all = self._loops
            starts, stops = buffers.header_starts[:rows], buffers.header_stops[:rows]
            decoded["headers"] = header_column(count, copy_all, batches, row_ends, starts, stops)
        del kept  # the loops have read the memory of the batches until here
        return decoded

    def _check(self) -> None:
        """Decode one record, so that a failure to compile happens here and not during a read."""
        builder = BatchBuilder()
        builder.append(7, b"key", b"value", [("h", b"x")])
        batch = builder.build(base_offset=3)
        header = read_header(batch)
        group = Group()
        group.add(header, record_view(batch, header, 1 << 20))
        columns = [name for name in column_types() if name != "headers" or self._with_headers]
        raw = self.decode(group, columns, 0, 9)
        assert raw["timestamp"].view(pa.int64()).to_pylist() == [7_000]
        decoded = [raw[name].to_pylist() for name in ("offset", "key", "value")]
        assert decoded == [[3], [b"key"], [b"value"]]
        if self._with_headers:
            assert raw["headers"].to_pylist() == [[{"key": "h", "value": b"x"}]]


def _reason(header: BatchHeader, data: Buffer) -> CorruptRecord:
    """Return the error of the plain decoder, which states the reason."""
    try:
        read_records(bytes(data), header)
    except CorruptRecord as error:
        return error
    raise AssertionError("the compiled loop rejects a batch that plain Python accepts")


def _table(group: Group) -> tuple[list[pa.Buffer], Any]:
    """Return the table of the batches that the loops read, and what keeps their memory."""
    kept, rows = [], []
    for header, data in group.batches:
        buffer = pa.py_buffer(data)
        kept.append(buffer)
        rows.append(
            (
                buffer.address,
                buffer.size,
                header.records_count,
                header.last_offset_delta,
                header.base_offset,
                header.base_timestamp,
                header.max_timestamp,
                header.timestamp_type,
            )
        )
    return kept, np.array(rows, np.int64)


class _Buffers:
    """The output arrays of one group, allocated at their largest possible size."""

    def __init__(self, group: Group, columns: Collection[str]) -> None:
        self._columns = columns
        count, size = group.rows_max, group.size_bytes
        self._offsets = empty(count, np.int64)
        self._timestamps = self._empty("timestamp", count, np.int64)
        self._types = self._empty("timestampType", count, np.int32)
        self._keys, self._values = (
            self._binary("key", count, size),
            self._binary("value", count, size),
        )
        self.header_starts = self._empty("headers", count, np.int64)
        self.header_stops = self._empty("headers", count, np.int64)

    def arrays(self) -> tuple[Any, ...]:
        """Return all arrays in the order of the arguments of `loop.scan`."""
        numbers = self._offsets, self._timestamps, self._types
        return *numbers, *self._keys, *self._values, self.header_starts, self.header_stops

    def to_columns(self, rows: int) -> RawColumns:
        """Return the first `rows` rows, without headers."""
        raw = {"offset": numbers(self._offsets, pa.int64(), rows)}
        if "timestamp" in self._columns:
            raw["timestamp"] = _times(self._timestamps[:rows])
        if "timestampType" in self._columns:
            raw["timestampType"] = numbers(self._types, pa.int32(), rows)
        for name, (ends, nulls, data) in (("key", self._keys), ("value", self._values)):
            if name in self._columns:
                raw[name] = binary(data, ends, nulls, rows)
        return raw

    def _empty(self, name: str, count: int, kind: Any) -> Any:
        return empty(count, kind) if name in self._columns else _nothing(kind)

    def _binary(self, name: str, rows: int, size: int) -> tuple[Any, Any, Any]:
        """Return the ends of a column's items, their nulls, and their bytes."""
        ends = self._empty(name, rows + 1, np.int32)
        ends[:1] = 0
        return ends, self._empty(name, rows, np.uint8), self._empty(name, size, np.uint8)


@cache
def _nothing(kind: Any) -> Any:
    return np.empty(0, kind)


def _times(milliseconds: Any) -> pa.Array:
    """Return timestamps in microseconds, in the same memory; impossible ones stay numbers."""
    rows = len(milliseconds)
    first, last = (milliseconds.min(), milliseconds.max()) if rows else (0, 0)
    if first < TIMESTAMP_MIN_MS or last > TIMESTAMP_MAX_MS:
        return numbers(milliseconds, pa.int64(), rows)
    milliseconds *= 1000
    return numbers(milliseconds, column_types()["timestamp"], rows)
