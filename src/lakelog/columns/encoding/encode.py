"""Rows of Arrow columns into record batches.

`RowEncoder` has two implementations: loops that Numba compiles, if Numba is installed and works on
this machine, and plain Python. Both return the same bytes and reject the same rows with the same
errors. Loading the compiled loops takes half a second, so a process encodes its first rows in plain
Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from lakelog.base.errors import ErrorCode
from lakelog.base.murmur2 import partition_for_key
from lakelog.columns.encoding.columns import (
    BadRowError,
    ColumnError,
    Headers,
    as_large_binary,
    as_lists,
    expanded,
    without_views,
)
from lakelog.columns.encoding.rows import (
    EncodedBatch,
    Limits,
    Rows,
    check_names,
    checked_rows,
    joined,
)
from lakelog.columns.packages import CompiledOrPlain, optional
from lakelog.records.batch import HEADER_SIZE
from lakelog.records.builder import encode_record
from lakelog.records.compression import Codec
from lakelog.records.varint import encode_varint

if TYPE_CHECKING:
    import pyarrow as pa

    from lakelog.columns.encoding.compiled import CompiledEncoder


_Headers = list[tuple[str, bytes | None]]


class _OpenBatch:
    """The records of one batch until it is full. Sizes are in bytes, times in milliseconds."""

    def __init__(self, partition: int, base_timestamp: int) -> None:
        self.partition = partition
        self.base_timestamp = self.max_timestamp = base_timestamp
        self.parts: list[bytes] = []
        self.count = 0
        self.size = HEADER_SIZE

    def encode(
        self, time: int, key: bytes | None, value: bytes | None, headers: _Headers
    ) -> tuple[bytes, bytes]:
        """Return the length and the encoding of the next record."""
        body = encode_record(time - self.base_timestamp, self.count, key, value, headers)
        return encode_varint(len(body)), body

    def add(self, time: int, length: bytes, body: bytes) -> None:
        self.parts += (length, body)
        self.count += 1
        self.size += len(length) + len(body)
        self.max_timestamp = max(self.max_timestamp, time)

    def encoded(self, codec: Codec) -> EncodedBatch:
        buffer = bytearray(HEADER_SIZE)
        buffer += b"".join(self.parts)
        assert len(buffer) == self.size, "sizes are added up correctly"
        times = self.base_timestamp, self.max_timestamp
        return EncodedBatch(buffer, codec, self.partition, self.count, *times)


def encode_plainly(
    rows: Rows, partitions: int, sticky: int, batch_bytes: int, codec: Codec
) -> tuple[list[EncodedBatch], int]:
    """Return the batches of the rows and the next sticky partition; see `loop.plan`."""
    nothing = [None] * rows.count
    keys = nothing if rows.keys is None else rows.keys.to_pylist()
    row_partitions = nothing if rows.partitions is None else rows.partitions.to_pylist()
    headers = [[]] * rows.count if rows.headers is None else _header_rows(rows.headers)
    columns = (rows.timestamps.to_pylist(), keys, rows.values.to_pylist(), headers, row_partitions)
    batches: list[_OpenBatch] = []
    opened: dict[int, _OpenBatch] = {}
    for time, key, value, pairs, given in zip(*columns, strict=True):
        is_sticky = given is None and key is None
        partition = sticky if is_sticky else given
        if partition is None:
            partition = partition_for_key(key, partitions)
        batch = opened.get(partition)
        while batch is not None:
            length, body = batch.encode(time, key, value, pairs)
            if batch.size + len(length) + len(body) <= batch_bytes:
                break
            del opened[partition]
            if partition == sticky:
                sticky = (sticky + 1) % partitions
            if is_sticky:
                partition = sticky
            batch = opened.get(partition)
        if batch is None:
            batch = opened[partition] = _OpenBatch(partition, time)
            batches.append(batch)
            length, body = batch.encode(time, key, value, pairs)
        batch.add(time, length, body)
    if sticky in opened:
        sticky = (sticky + 1) % partitions
    return [batch.encoded(codec) for batch in batches], sticky


def _header_rows(headers: Headers) -> list[_Headers]:
    ends = headers.ends.to_pylist()
    keys = [key.decode() for key in headers.keys.to_pylist()]
    pairs = list(zip(keys, headers.values.to_pylist(), strict=True))
    return [pairs[start:end] for start, end in pairwise(ends)]


BATCH_BYTES = 128 << 10
RECORD_BYTES_MAX = (1 << 20) - 128
"""The largest record of a topic with the default max.message.bytes, see `Limits`."""


class RowEncoder:
    """Encodes rows of one topic. Columns are `value` and optionally the others of `COLUMNS`.

    key, value: binary or string of any width, null allowed. headers: a list of structs of key
    (string) and value (binary), or a map. timestamp: of any unit, or milliseconds as int64; null is
    the time of the call. partition: an integer; null where the key decides. Dictionaries, views
    and slices are accepted.

    A row without a partition goes to the partition of its key, as in Java's producer (murmur2).
    Rows without a key fill the batch of one partition, then that of the next (KIP-480).

    partitions: the number of partitions of the topic. batch_bytes: the target size of a batch
    before compression; only a larger record exceeds it, in a batch of its own. record_bytes_max:
    see `Limits`. sticky: the partition at which rows without a key begin. compiled: the
    implementation, by default the faster one.
    """

    def __init__(
        self,
        partitions: int,
        *,
        codec: Codec = Codec.NONE,
        batch_bytes: int = BATCH_BYTES,
        record_bytes_max: int = RECORD_BYTES_MAX,
        sticky: int = 0,
        compiled: bool | None = None,
    ) -> None:
        assert partitions > 0, "a topic has at least one partition"
        self._limits = Limits(partitions, record_bytes_max)
        self._codec = codec
        self._batch_bytes = batch_bytes
        self._sticky = sticky % partitions
        self._compiled = compiled

    @property
    def sticky(self) -> int:
        """The partition at which the next rows without a key begin."""
        return self._sticky

    def check(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Raise the errors that `encode` would raise for these rows."""
        for _ in checked_rows(batches, self._limits, 0):
            pass

    def encode(self, batches: Iterable[pa.RecordBatch], now_ms: int) -> Iterator[EncodedBatch]:
        """Yield the rows as record batches, which keep the order of the rows of each partition.

        The rows are encoded in groups of about 8 MiB, so small `batches` are joined. now_ms: the
        timestamp of rows without one, in ms since the epoch. Raises `ColumnError` for a table
        that has no rows of records, and `BadRowError` for a row that is too large, or has a
        partition or a timestamp that does not exist. Earlier groups have been yielded then.
        """
        partitions = self._limits.partitions
        for rows in joined(checked_rows(batches, self._limits, now_ms)):
            with_headers = rows.headers is not None
            encoder = _encoders.choose(self._compiled, rows.count, with_headers=with_headers)
            _encoders.plain_rows += rows.count * (encoder is None)
            work = encode_plainly if encoder is None else encoder.encode
            encoded, self._sticky = work(
                rows, partitions, self._sticky, self._batch_bytes, self._codec
            )
            yield from encoded


def _load(with_headers: bool) -> CompiledEncoder:
    from lakelog.columns.encoding.compiled import CompiledEncoder

    return CompiledEncoder(with_headers=with_headers)


_encoders = CompiledOrPlain("Encoding", _load)


TOPIC = "topic"


class TopicRows:
    """Rows of one topic, for `RowEncoder`."""

    def __init__(self, topic: str, table: pa.Table, numbers: pa.ChunkedArray | None) -> None:
        """numbers: the place of each row in the original table, if not all rows are here."""
        self.topic = topic
        self.table = table
        self._numbers = numbers

    @property
    def batches(self) -> list[pa.RecordBatch]:
        """The rows as record batches of Arrow."""
        return list(self.table.to_batches())

    @contextmanager
    def original_rows(self) -> Iterator[None]:
        """Raise a `BadRowError` of the block with the row's number in the original table."""
        try:
            yield
        except BadRowError as error:
            if self._numbers is None:
                raise
            row = self._numbers[error.row].as_py()
            raise BadRowError(row, error.reason, error.code) from None

    def choose_partitions(self, choose: Callable[[bytes], int]) -> None:
        """Set the partition of each row that has a key and no partition."""
        import pyarrow as pa

        if "key" not in self.table.schema.names:
            return
        names = self.table.schema.names
        column = self.table.column("key")
        keys = [key for chunk in column.chunks for key in as_large_binary(chunk, "key").to_pylist()]
        given: list[Any] = [None] * len(keys)
        if "partition" in names:
            given = self.table.column("partition").to_pylist()
        chosen = [
            choose(key) if partition is None and key is not None else partition
            for key, partition in zip(keys, given, strict=True)
        ]
        rest = self.table.drop_columns(["partition"]) if "partition" in names else self.table
        self.table = rest.append_column("partition", pa.array(chosen, pa.int64()))


def as_table(rows: Any) -> pa.Table:
    """Return a table of Arrow: of a table, a record batch, or an object with Arrow's C interface.

    DataFrames of pandas and polars and relations of DuckDB have it. Raises `MissingPackageError`
    without pyarrow, `TypeError` for other objects, and `ColumnError` for columns of Python objects.
    """
    pa = optional("pyarrow", "arrow")
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if not hasattr(rows, "__arrow_c_stream__"):
        raise TypeError(
            f"{type(rows).__name__} is no table: expected a pyarrow.Table, or a DataFrame"
        )
    if type(rows).__module__.startswith("polars."):
        _check_objects(rows)
    return pa.table(rows)


def _check_objects(frame: Any) -> None:
    """Raise `ColumnError` for columns of the type Object: polars exports addresses for them."""
    for name, kind in zip(frame.columns, frame.dtypes, strict=True):
        if str(kind) == "Object":
            raise ColumnError(f"the column {name!r} has polars' type Object, which Arrow lacks")


def split_topics(table: pa.Table, topic: str | None) -> Iterable[TopicRows]:
    """Return the rows of each topic in the order of their first rows, without the column `topic`.

    topic: the topic of all rows, instead of the column. Raises `ColumnError` without either, and
    `BadRowError` for a row without a topic.
    """
    import pyarrow.compute as pc

    has_column = TOPIC in table.schema.names
    if topic is not None:
        return [TopicRows(topic, table.drop_columns([TOPIC]) if has_column else table, None)]
    if not has_column:
        raise ColumnError("the column 'topic' is missing, and no topic is given")
    names = _text(table.column(TOPIC))
    if names.null_count:
        row = pc.index(pc.is_null(names), True).as_py()
        raise BadRowError(row, "the topic is null", ErrorCode.INVALID_TOPIC_EXCEPTION)
    rest = table.drop_columns([TOPIC])
    unique = pc.unique(names).to_pylist()
    if len(unique) == 1:
        return [TopicRows(unique[0], rest, None)]
    check_names(rest.schema)
    rest = _takeable(rest)
    topics = []
    for name in unique:
        numbers = pc.indices_nonzero(pc.equal(names, name))
        topics.append(TopicRows(name, rest.take(numbers), numbers))
    return topics


def _takeable(table: pa.Table) -> pa.Table:
    """Return the table in layouts from which Arrow can take rows: neither runs nor views."""
    import pyarrow as pa

    layouts = [as_lists if name == "headers" else _takeable_column for name in table.schema.names]
    columns = [
        pa.chunked_array([layout(chunk) for chunk in column.chunks])
        for layout, column in zip(layouts, table.columns, strict=True)
    ]
    return pa.Table.from_arrays(columns, table.schema.names)


def _takeable_column(column: pa.Array) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_run_end_encoded(column.type):
        return without_views(column)
    # A dictionary, which keeps the value of each run once.
    numbers = pa.array(range(len(column.values)), pa.int32())
    runs = pa.RunEndEncodedArray.from_arrays(column.run_ends, numbers)
    rows = pc.run_end_decode(runs.slice(column.offset, len(column)))
    return pa.DictionaryArray.from_arrays(rows, without_views(column.values))


def _text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    import pyarrow as pa

    try:
        chunks = [without_views(expanded(chunk)) for chunk in column.chunks]
        return pa.chunked_array(chunks, None if chunks else column.type).cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise ColumnError(f"the column 'topic' must be a string, not {column.type}") from None
