"""The columns of the source, in Spark's types.

They equal the columns of the official Kafka connector: key, value, topic, partition, offset,
timestamp, timestampType and, with an option, headers. Spark does not push column selection
down into Python sources. A query selects columns with `option("columns", "value,offset")` or a
schema of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    import pyarrow as pa

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
"""The column for the milliseconds of an impossible timestamp, whose `timestamp` is null.

It exists with the option `impossibleTimestamps=null` only."""
_ALL = StructType([*SCHEMA_WITH_HEADERS.fields, RAW_TIMESTAMP])


def source_schema(
    columns: tuple[str, ...], *, include_headers: bool, null_timestamps: bool
) -> StructType:
    """Return the schema of a query. Raises `OptionError` for an unknown column."""
    if not columns:
        fields = SCHEMA_WITH_HEADERS.fields if include_headers else SCHEMA.fields
        return StructType([*fields, RAW_TIMESTAMP] if null_timestamps else [*fields])
    by_name = {name.lower(): name for name in _ALL.fieldNames()}
    unknown = [name for name in columns if name.lower() not in by_name]
    if unknown:
        names = ", ".join(by_name.values())
        raise OptionError(
            f"option 'columns': unknown column {unknown[0]!r}; expected some of {names}"
        )
    return StructType([_ALL[by_name[name.lower()]] for name in columns])


def check_schema(schema: StructType) -> None:
    """Check a user's schema. Raises `OptionError` if it has other columns than the source."""
    fields = {field.name: field for field in _ALL}
    for field in schema:
        if field.name not in fields or field.dataType != fields[field.name].dataType:
            columns = ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in fields.values())
            raise OptionError(
                f"unsupported column {field.name} {field.dataType.simpleString()} in the schema; "
                f"expected some of {columns}"
            )


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark compares with a data source's first batch."""
    # The process that only names the columns does without pyarrow, which takes long to import.
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")
