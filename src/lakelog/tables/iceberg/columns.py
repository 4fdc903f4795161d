"""The schema of the data files, as Arrow declares it.

It equals the table's schema in `table.py` (a test compares them). It is declared a second time
because processes that only write files must not import PyIceberg.
"""

from __future__ import annotations

import pyarrow as pa


def field(number: int, name: str, type_: pa.DataType, *, nullable: bool = True) -> pa.Field:
    """Return a field with an id: Iceberg finds columns in data files by id."""
    return pa.field(name, type_, nullable, metadata={"PARQUET:field_id": str(number)})


RAW_TIMESTAMP = "rawTimestamp"
"""The column for timestamps outside the years 1 to 9999, in milliseconds since the epoch.

The row's `timestamp` is null then."""
DATA, RESCUED = "data", "rescued"
"""The columns of typed JSON values; see `lakelog.tables.typed`."""

_HEADER = pa.struct([field(10, "key", pa.large_string()), field(11, "value", pa.large_binary())])
ARROW_SCHEMA = pa.schema(
    [
        field(1, "topic", pa.large_string(), nullable=False),
        field(2, "partition", pa.int32(), nullable=False),
        field(3, "offset", pa.int64(), nullable=False),
        field(4, "timestamp", pa.timestamp("us", "UTC"), nullable=False),
        field(5, "timestampType", pa.int32(), nullable=False),
        field(6, "key", pa.large_binary()),
        field(7, "value", pa.large_binary()),
        field(8, "headers", pa.large_list(field(9, "element", _HEADER, nullable=False))),
    ]
)


def with_null_timestamps(raw_timestamp_id: int) -> pa.Schema:
    """Return the schema of a table with nullable timestamps and the column `rawTimestamp`.

    raw_timestamp_id: the id of that column in the table.
    """
    nullable = field(4, "timestamp", pa.timestamp("us", "UTC"))
    schema = ARROW_SCHEMA.set(ARROW_SCHEMA.get_field_index("timestamp"), nullable)
    return schema.append(field(raw_timestamp_id, RAW_TIMESTAMP, pa.int64()))
