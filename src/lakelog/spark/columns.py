"""The columns of the source, in Spark's types and as Arrow arrays.

They are the official Kafka connector's: key, value, topic, partition, offset, timestamp,
timestampType and, when asked for, headers. There is no column pushdown into Python sources, so a
query narrows them itself: `option("columns", "value,offset")`, or a schema of fewer columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from lakelog.spark.errors import OptionError

if TYPE_CHECKING:
    from lakelog.spark.broker import Chunk

HEADERS_TYPE = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
SCHEMA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)
SCHEMA_WITH_HEADERS = StructType([*SCHEMA.fields, StructField("headers", HEADERS_TYPE)])

_ROWS_MAX = 10_000
_BYTES_MAX = 8 << 20
_Column = Callable[[str, int, "Chunk", "pa.DataType"], "pa.Array"]


def source_schema(columns: tuple[str, ...], *, include_headers: bool) -> StructType:
    """The schema of a query. Raises `OptionError` for a column that does not exist."""
    if not columns:
        return SCHEMA_WITH_HEADERS if include_headers else SCHEMA
    by_name = {name.lower(): name for name in SCHEMA_WITH_HEADERS.fieldNames()}
    unknown = [name for name in columns if name.lower() not in by_name]
    if unknown:
        known = ", ".join(by_name.values())
        raise OptionError(f"option 'columns': there is no {unknown[0]!r} among {known}")
    return StructType([SCHEMA_WITH_HEADERS[by_name[name.lower()]] for name in columns])


def check_schema(schema: StructType) -> None:
    """Raises `OptionError` unless `schema`, given by the user, is made of the source's columns."""
    known = {field.name: field for field in SCHEMA_WITH_HEADERS}
    for field in schema:
        if field.name not in known or field.dataType != known[field.name].dataType:
            columns = ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in known.values())
            raise OptionError(
                f"a schema may only choose among the columns {columns}; "
                f"not {field.name} {field.dataType.simpleString()}"
            )


def arrow_schema(schema: StructType) -> pa.Schema:
    """What Spark compares a data source's first batch with."""
    return to_arrow_schema(schema, timezone="UTC")


class ArrowRows:
    """Makes Arrow record batches of exactly one schema, whose names are the source's columns.

    Spark checks names and types of a partition's first batch only and reads the others by
    position, so each batch is built to the schema and nothing is left to inference.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._columns = [(_COLUMNS[field.name], field.type) for field in schema]

    def convert(
        self, topic: str, partition: int, chunks: Iterable[Chunk]
    ) -> Iterator[pa.RecordBatch]:
        """Batches of about 10,000 rows or 8 MiB. Chunks of few records are put together."""
        pending: list[pa.RecordBatch] = []
        rows = size = 0
        for chunk in chunks:
            batch = self._batch(topic, partition, chunk)
            pending.append(batch)
            rows += batch.num_rows
            size += batch.nbytes
            if rows >= _ROWS_MAX or size >= _BYTES_MAX:
                yield pa.concat_batches(pending)
                pending, rows, size = [], 0, 0
        if pending:
            yield pa.concat_batches(pending)

    def _batch(self, topic: str, partition: int, chunk: Chunk) -> pa.RecordBatch:
        arrays = [column(topic, partition, chunk, type_) for column, type_ in self._columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _headers(chunk: Chunk, type_: pa.DataType) -> pa.Array:
    """No headers are a null, as in the official connector."""
    rows = [
        [{"key": key, "value": value} for key, value in record.headers] or None
        for record in chunk.records
    ]
    return pa.array(rows, type_)


def _timestamps(chunk: Chunk, type_: pa.DataType) -> pa.Array:
    times = pa.array([record.timestamp for record in chunk.records], pa.timestamp("ms", "UTC"))
    return times.cast(type_)


def _constant(value: object, chunk: Chunk, type_: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(value, type_), len(chunk.records))


_COLUMNS: dict[str, _Column] = {
    "key": lambda _t, _p, chunk, type_: pa.array([r.key for r in chunk.records], type_),
    "value": lambda _t, _p, chunk, type_: pa.array([r.value for r in chunk.records], type_),
    "topic": lambda topic, _p, chunk, type_: _constant(topic, chunk, type_),
    "partition": lambda _t, partition, chunk, type_: _constant(partition, chunk, type_),
    "offset": lambda _t, _p, chunk, type_: pa.array([r.offset for r in chunk.records], type_),
    "timestamp": lambda _t, _p, chunk, type_: _timestamps(chunk, type_),
    "timestampType": lambda _t, _p, chunk, type_: _constant(chunk.timestamp_type, chunk, type_),
    "headers": lambda _t, _p, chunk, type_: _headers(chunk, type_),
}
