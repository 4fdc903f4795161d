"""The partition of each row, chosen before the rows are shuffled. No I/O.

All tasks of a transaction with one producer id share its sequences, so each topic-partition must
have one writer: a first pass over the rows adds topic and partition, Spark shuffles by these, and a
second pass writes.

Rows with a partition keep it, rows with a key go where Java's producer sends the key, and other
rows are dealt to the partitions in runs, which compress better than single rows.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from lakelog.base.murmur2 import partition_for_key
from lakelog.spark.schema import HEADERS_TYPE, arrow_schema
from lakelog.spark.sink.columns import records
from lakelog.spark.sink.errors import RowError

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
        rows = []
        for record in records(batch, self._topic):
            headers = [{"key": name, "value": value} for name, value in record["headers"]]
            rows.append(
                {
                    "topic": record["topic"],
                    "partition": self._choose(record["topic"], record["partition"], record["key"]),
                    "key": record["key"],
                    "value": record["value"],
                    "headers": headers or None,
                    "timestamp": record["timestamp_ms"],
                }
            )
        return pa.RecordBatch.from_pylist(rows, schema=arrow_schema(ROUTED))

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
