"""Rows of a table in the one form that both encoders read.

A table may come from anywhere: strings or bytes of any width, views, dictionaries, slices. Here
every column becomes an array of one known type, and every row is checked. So the encoders have no
errors of their own. The sizes of all rows are known before anything is copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakelog.base.errors import ErrorCode
from lakelog.columns.encoding.columns import (
    BadRowError,
    ColumnError,
    Headers,
    as_large_binary,
    expanded,
    header_lengths,
    is_plain,
    joined_headers,
    lengths,
    read_headers,
    read_timestamps,
)
from lakelog.records.batch import HEADER_SIZE, TRANSACTIONAL
from lakelog.records.builder import seal
from lakelog.records.compression import Codec, compress

if TYPE_CHECKING:
    import pyarrow as pa


COLUMNS = ("key", "value", "headers", "timestamp", "partition")
"""The columns of a record. Only `value` is required."""

_ROWS_MAX = 65_536
_BYTES_MAX = 8 << 20


@dataclass(slots=True, frozen=True)
class Limits:
    """Limits of a topic: its number of partitions, and the size of a record in bytes.

    The size of a record is that of its key, value and headers, with 10 bytes for each header.
    """

    partitions: int
    record_bytes: int


@dataclass(slots=True, frozen=True)
class Rows:
    """Checked rows.

    keys, values: large_binary. timestamps: int64, milliseconds since the epoch, never null.
    partitions: int32, null where the key decides; `None` for no such column, as for keys and
    headers.
    """

    count: int
    keys: pa.Array | None
    values: pa.Array
    headers: Headers | None
    timestamps: pa.Array
    partitions: pa.Array | None
    size_bytes: int


def checked_rows(batches: Iterable[pa.RecordBatch], limits: Limits, now_ms: int) -> Iterator[Rows]:
    """Yield all rows in pieces of about 8 MiB or 65,536 rows.

    now_ms: the timestamp of rows without one. Raises `ColumnError`, and `BadRowError` for the
    first piece that has a bad row.
    """
    start, names = 0, None
    for batch in batches:
        check_names(batch.schema)
        if names is not None and set(batch.schema.names) != names:
            raise ColumnError("the batches of a table have different columns")
        names = set(batch.schema.names)
        for piece in _pieces(batch, limits, start):
            yield _rows(piece, limits, now_ms, start)
            start += piece.num_rows


def joined(pieces: Iterable[Rows]) -> Iterator[Rows]:
    """Yield the rows in pieces that are as large as possible: small ones make small batches."""
    waiting: list[Rows] = []
    size = count = 0
    for rows in pieces:
        if waiting and (size + rows.size_bytes > _BYTES_MAX or count + rows.count > _ROWS_MAX):
            yield _concatenated(waiting)
            waiting, size, count = [], 0, 0
        waiting.append(rows)
        size, count = size + rows.size_bytes, count + rows.count
    if waiting:
        yield _concatenated(waiting)


def check_names(schema: pa.Schema) -> None:
    """Raise `ColumnError` unless all columns are of a record, each once, with a value."""
    for name in schema.names:
        if name not in COLUMNS:
            expected = ", ".join(COLUMNS)
            raise ColumnError(f"unknown column {name!r}; expected some of {expected}")
        if schema.names.count(name) > 1:
            raise ColumnError(f"the column {name!r} exists more than once")
    if "value" not in schema.names:
        raise ColumnError("the column 'value' is missing")


def _pieces(batch: pa.RecordBatch, limits: Limits, start: int) -> Iterator[pa.RecordBatch]:
    """Yield slices of `batch` that are small also after dictionaries are decoded.

    Raises `BadRowError` for a row that is larger than a record may be.
    """
    count = batch.num_rows
    if count == 0:
        return
    if count > _ROWS_MAX:
        for first in range(0, count, _ROWS_MAX):
            yield from _pieces(batch.slice(first, _ROWS_MAX), limits, start + first)
        return
    if _size(batch, limits, start) <= _BYTES_MAX or count == 1:
        yield batch
        return
    half = count // 2
    yield from _pieces(batch.slice(0, half), limits, start)
    yield from _pieces(batch.slice(half), limits, start + half)


def _size(batch: pa.RecordBatch, limits: Limits, start: int) -> int:
    """Return the bytes of all rows. Raises `BadRowError` for the first row over the limit."""
    import pyarrow.compute as pc

    bound = _size_bound(batch, limits)
    if bound is not None:
        return bound
    sizes = lengths(batch.column("value"), "value")
    if "key" in batch.schema.names:
        sizes = pc.add(sizes, lengths(batch.column("key"), "key"))
    if "headers" in batch.schema.names:
        sizes = pc.add(sizes, header_lengths(batch.column("headers"), start))
    if pc.max(sizes).as_py() > limits.record_bytes:
        row = pc.index(pc.greater(sizes, limits.record_bytes), True).as_py()
        text = f"a record of {sizes[row].as_py()} bytes exceeds the limit of {limits.record_bytes}"
        raise BadRowError(start + row, text, ErrorCode.MESSAGE_TOO_LARGE)
    return int(pc.sum(sizes).as_py())


def _size_bound(batch: pa.RecordBatch, limits: Limits) -> int | None:
    """Return an upper bound of the bytes of all rows if it shows that no row exceeds the limit.

    It is computed from few numbers, so it exists for plain columns without headers only.
    """
    import pyarrow.compute as pc

    names = batch.schema.names
    columns = [batch.column(name) for name in ("key", "value") if name in names]
    if "headers" in names or not all(is_plain(column.type) for column in columns):
        return None
    longest = sum(pc.max(pc.binary_length(column)).as_py() or 0 for column in columns)
    size = sum(column.nbytes for column in columns)
    return size if longest <= limits.record_bytes else None


def _rows(piece: pa.RecordBatch, limits: Limits, now_ms: int, start: int) -> Rows:
    names = piece.schema.names
    keys = as_large_binary(piece.column("key"), "key") if "key" in names else None
    values = as_large_binary(piece.column("value"), "value")
    headers = read_headers(piece.column("headers"), start) if "headers" in names else None
    partitions = None
    if "partition" in names:
        partitions = _partitions(piece.column("partition"), limits.partitions, start)
    timestamps = read_timestamps(piece, now_ms, start)
    size = sum(column.nbytes for column in (keys, values) if column is not None)
    if headers is not None:
        size += headers.keys.nbytes + headers.values.nbytes
    return Rows(piece.num_rows, keys, values, headers, timestamps, partitions, size)


def _partitions(column: pa.Array, count: int, start: int) -> pa.Array:
    """Return the column as int32. Raises `BadRowError` for a partition that does not exist."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = expanded(column)
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), pa.int32())
    if not pa.types.is_integer(column.type):
        raise ColumnError(f"the column 'partition' must be an integer, not {column.type}")
    bounds = pc.min_max(column).as_py()
    if bounds["min"] is not None and not 0 <= bounds["min"] <= bounds["max"] < count:
        signed = column.cast(pa.int64(), safe=False)  # beyond 63 bits it becomes negative
        wrong = pc.or_(pc.less(signed, 0), pc.greater_equal(signed, count))
        row = pc.index(pc.fill_null(wrong, False), True).as_py()
        text = f"partition {column[row].as_py()} does not exist; the topic has {count}"
        raise BadRowError(start + row, text, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return column.cast(pa.int32())


def _concatenated(pieces: list[Rows]) -> Rows:
    """Return one piece. All are of one table, so a column is missing in all or in none."""
    import pyarrow as pa

    if len(pieces) == 1:
        return pieces[0]
    first = pieces[0]

    def column(name: str) -> Any:
        if getattr(first, name) is None:
            return None
        return pa.concat_arrays([getattr(piece, name) for piece in pieces])

    return Rows(
        sum(piece.count for piece in pieces),
        column("keys"),
        column("values"),
        None if first.headers is None else joined_headers([piece.headers for piece in pieces]),
        column("timestamps"),
        column("partitions"),
        sum(piece.size_bytes for piece in pieces),
    )


class EncodedBatch:
    """The records of one partition, compressed, behind space for the header.

    partition: the partition that the rows belong to. count: the number of records. base_timestamp,
    max_timestamp: of the first and the newest record, in milliseconds since the epoch.
    """

    __slots__ = ("_buffer", "_codec", "base_timestamp", "count", "max_timestamp", "partition")

    def __init__(
        self,
        buffer: bytearray | memoryview,
        codec: Codec,
        partition: int,
        count: int,
        base_timestamp: int,
        max_timestamp: int,
    ) -> None:
        """buffer: space for the header and then the records, not compressed."""
        assert count > 0, "a batch has at least one record"
        if codec:
            content = compress(codec, memoryview(buffer)[HEADER_SIZE:])
            buffer = bytearray(HEADER_SIZE)
            buffer += content
        self._buffer = buffer
        self._codec = codec
        self.partition = partition
        self.count = count
        self.base_timestamp = base_timestamp
        self.max_timestamp = max_timestamp

    @property
    def size_estimate(self) -> int:
        """The size of the batch in bytes, as it is sent."""
        return len(self._buffer)

    def build(
        self,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        base_offset: int = 0,
        *,
        leader_epoch: int = -1,
        is_transactional: bool = False,
    ) -> bytearray | memoryview:
        """Return the batch with these numbers in its header, and with its checksum.

        `BatchBuilder.build` defines the numbers. A second call changes the result of the first
        one: it is the same memory.
        """
        seal(
            self._buffer,
            self._codec | is_transactional * TRANSACTIONAL,
            self.count,
            self.base_timestamp,
            self.max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            base_offset,
            leader_epoch,
        )
        return self._buffer
