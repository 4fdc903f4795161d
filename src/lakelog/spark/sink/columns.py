"""The columns of the rows that a query writes, as in the official connector.

A row has a value, and optionally key, topic, partition, headers and timestamp. Other columns are
ignored, so that the rows of a topic can be written with all columns of the source. Columns become
the arguments of `Producer.send`, one record for each row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import BinaryType, DataType, IntegerType, LongType, StringType, TimestampType

from lakelog.spark.schema import HEADERS_TYPE
from lakelog.spark.sink.errors import RowError
from lakelog.tables.topic.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


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


def records(batch: pa.RecordBatch, topic: str | None) -> Iterator[dict[str, Any]]:
    """Yield the arguments of `Producer.send` for each row.

    topic: the option, which takes precedence over the column. Raises `RowError` for a row without a
    topic.
    """
    columns = {name: _values(name, batch.column(name)) for name in batch.schema.names}
    for row in zip(*columns.values(), strict=True):
        yield _record(dict(zip(columns, row, strict=True)), topic)


def _record(row: dict[str, Any], topic: str | None) -> dict[str, Any]:
    name = topic or row.get("topic")
    if name is None:
        raise RowError("a row has no topic: set the option 'topic', or fill the column 'topic'")
    return {
        "topic": name,
        "value": row["value"],
        "key": row.get("key"),
        "headers": [(h["key"], h["value"]) for h in row.get("headers") or ()],
        "partition": row.get("partition"),
        "timestamp_ms": row.get("timestamp"),
    }


def _values(name: str, column: pa.Array) -> list[Any]:
    if name in ("key", "value"):
        return list(column.cast(pa.binary()).to_pylist())
    if name == "timestamp" and pa.types.is_timestamp(column.type):
        return list(column.cast(pa.timestamp("ms"), safe=False).cast(pa.int64()).to_pylist())
    return list(column.to_pylist())
