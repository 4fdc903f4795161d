"""The columns of the source, in Spark's types and as Arrow arrays.

They are the official Kafka connector's: key, value, topic, partition, offset, timestamp,
timestampType and, when asked for, headers. There is no column pushdown into Python sources, so a
query narrows them itself: `option("columns", "value,offset")`, or a schema of fewer columns.
"""

from __future__ import annotations

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

from lakelog.tables.topic.errors import OptionError

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
RAW_TIMESTAMP = StructField("rawTimestamp", LongType())
"""The number that stands for a timestamp that is null because there is none such; only with the
option `impossibleTimestamps=null`."""
_ALL = StructType([*SCHEMA_WITH_HEADERS.fields, RAW_TIMESTAMP])


def source_schema(
    columns: tuple[str, ...], *, include_headers: bool, null_timestamps: bool
) -> StructType:
    """The schema of a query. Raises `OptionError` for a column that does not exist."""
    if not columns:
        fields = SCHEMA_WITH_HEADERS.fields if include_headers else SCHEMA.fields
        return StructType([*fields, RAW_TIMESTAMP] if null_timestamps else [*fields])
    by_name = {name.lower(): name for name in _ALL.fieldNames()}
    unknown = [name for name in columns if name.lower() not in by_name]
    if unknown:
        known = ", ".join(by_name.values())
        raise OptionError(f"option 'columns': there is no {unknown[0]!r} among {known}")
    return StructType([_ALL[by_name[name.lower()]] for name in columns])


def check_schema(schema: StructType) -> None:
    """Raises `OptionError` unless `schema`, given by the user, is made of the source's columns."""
    known = {field.name: field for field in _ALL}
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
