"""The columns of the rows that a query writes, as in the official connector, and their partitions.

A row has a value, and optionally key, topic, partition, headers and timestamp. Other columns are
ignored, so that the rows of a topic can be written with all columns of the source. Columns become
the arguments of `Producer.send`, one record for each row.

All tasks of a transaction with one producer id share its sequences, so each topic-partition must
have one writer: a `Router` adds topic and partition in a first pass over the rows, Spark shuffles
by these, and a second pass writes. Rows with a partition keep it, rows with a key go where Java's
producer sends the key, and other rows are dealt to the partitions in runs, which compress better
than single rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from lakelog.base.murmur2 import partition_for_key
from lakelog.spark.schema import HEADERS_TYPE, arrow_schema
from lakelog.spark.sink.options import RowError
from lakelog.tables.topic.errors import OptionError

_BYTES: tuple[DataType, ...] = (BinaryType(), StringType())
_ACCEPTED: dict[str, tuple[DataType, ...]] = {
    "key": _BYTES,
    "value": _BYTES,
    "topic": (StringType(),),
    "partition": (IntegerType(),),
    "headers": (HEADERS_TYPE,),
    "timestamp": (TimestampType(), LongType()),
}


def check_columns(schema: StructType, topic: str | None) -> None:
    """Check the columns of a query. topic: the option. Raises `OptionError`."""
    for field in schema:
        accepted = _ACCEPTED.get(field.name)
        if accepted is None:
            continue
        if not any(_same_shape(field.dataType, data_type) for data_type in accepted):
            expected = " or ".join(data_type.simpleString() for data_type in accepted)
            raise OptionError(
                f"column {field.name!r} must be {expected}, not {field.dataType.simpleString()}"
            )
    if "value" not in schema.fieldNames():
        raise OptionError("missing column 'value'")
    if topic is None and "topic" not in schema.fieldNames():
        raise OptionError("missing topic: set the option 'topic' or add a column 'topic'")


def record_columns(names: Iterable[str]) -> list[str]:
    """Return the names of columns that a record has."""
    return [name for name in names if name in _ACCEPTED]


def _same_shape(given: DataType, accepted: DataType) -> bool:
    """Return whether two types are equal apart from nullability, which expressions change."""
    return bool(given.simpleString() == accepted.simpleString())


def _values(name: str, column: pa.Array) -> list[Any]:
    if name in ("key", "value"):
        return list(column.cast(pa.binary()).to_pylist())
    if name == "timestamp" and pa.types.is_timestamp(column.type):
        return list(column.cast(pa.timestamp("ms"), safe=False).cast(pa.int64()).to_pylist())
    return list(column.to_pylist())


ROUTED = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("headers", HEADERS_TYPE),
        StructField("timestamp", LongType()),
    ]
)
"""The columns after routing: topic and partition are never null, timestamp is in milliseconds."""

_RUN = 256


class Router:
    """Adds topic and partition to the rows of one task.

    topic: the option, which takes precedence over the column. partitions: returns the number of
    partitions of a topic. start: selects the first partition of rows without a key.
    """

    def __init__(self, topic: str | None, partitions: Callable[[str], int], start: int) -> None:
        self._topic = topic
        self._partitions = partitions
        self._dealt = start * _RUN

    def route(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows with the columns of `ROUTED`. Raises `RowError`."""
        nothing: list[Any] = [None] * batch.num_rows
        columns = dict.fromkeys(ROUTED.fieldNames(), nothing)
        columns |= {name: _values(name, batch.column(name)) for name in batch.schema.names}
        if self._topic:
            columns["topic"] = [self._topic] * batch.num_rows
        if None in columns["topic"]:
            raise RowError("a row has no topic: set the option 'topic', or fill the column 'topic'")
        rows = zip(*(columns[name] for name in ("topic", "partition", "key")), strict=True)
        columns["partition"] = [self._choose(*row) for row in rows]
        columns["headers"] = [headers or None for headers in columns["headers"]]
        return pa.RecordBatch.from_pydict(columns, schema=arrow_schema(ROUTED))

    def _choose(self, topic: str, partition: int | None, key: bytes | None) -> int:
        count = self._partitions(topic)
        if partition is None:
            if key is not None:
                return partition_for_key(key, count)
            self._dealt += 1
            return self._dealt // _RUN % count
        if not 0 <= partition < count:
            raise RowError(
                f"a row's column 'partition' is {partition}, but topic {topic!r} has "
                f"{count} partition{'s'[: count > 1]}"
            )
        return partition
