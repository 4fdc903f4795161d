"""Arrow columns as the arguments of `Producer.send`, one record for each row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from lakelog.spark.sink.errors import RowError


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
