"""The archive's columns as the Parquet files hold them.

The same as the table's schema (`table.py`, and a test compares them), said without PyIceberg.
"""

from __future__ import annotations

import pyarrow as pa


def _field(number: int, name: str, type_: pa.DataType, *, nullable: bool = True) -> pa.Field:
    """Iceberg knows columns by number."""
    return pa.field(name, type_, nullable, metadata={"PARQUET:field_id": str(number)})


RAW_TIMESTAMP = "rawTimestamp"
"""Milliseconds since the epoch, of a timestamp that is null because no date has that number."""

_HEADER = pa.struct([_field(10, "key", pa.large_string()), _field(11, "value", pa.large_binary())])
ARROW_SCHEMA = pa.schema(
    [
        _field(1, "topic", pa.large_string(), nullable=False),
        _field(2, "partition", pa.int32(), nullable=False),
        _field(3, "offset", pa.int64(), nullable=False),
        _field(4, "timestamp", pa.timestamp("us", "UTC"), nullable=False),
        _field(5, "timestampType", pa.int32(), nullable=False),
        _field(6, "key", pa.large_binary()),
        _field(7, "value", pa.large_binary()),
        _field(8, "headers", pa.large_list(_field(9, "element", _HEADER, nullable=False))),
    ]
)


def with_null_timestamps(raw_timestamp_id: int) -> pa.Schema:
    """The columns of a table whose timestamps may be null, where `rawTimestamp` has the number."""
    nullable = _field(4, "timestamp", pa.timestamp("us", "UTC"))
    schema = ARROW_SCHEMA.set(ARROW_SCHEMA.get_field_index("timestamp"), nullable)
    return schema.append(_field(raw_timestamp_id, RAW_TIMESTAMP, pa.int64()))
