"""A data source of constant batches: what Spark itself takes for rows that cost nothing to make."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_BATCH_BYTES = 2 << 20
_VALUE = "value binary"
_ALL = (
    f"key binary, {_VALUE}, topic string, partition int, offset long, timestamp timestamp, "
    "timestampType int"
)


class ConstantSource(DataSource):  # type: ignore[misc]
    """Options: `records`, `bytes` of a value, `partitions`, and `columns` (`value` or `all`)."""

    @classmethod
    def name(cls) -> str:
        return "constant"

    def schema(self) -> str:
        return _VALUE if self.options["columns"] == "value" else _ALL

    def reader(self, schema: StructType) -> ConstantReader:
        return ConstantReader(schema, self.options)


class ConstantReader(DataSourceReader):  # type: ignore[misc]
    """Yields one batch of random values again and again."""

    def __init__(self, schema: StructType, options: Any) -> None:
        self._schema = schema
        self._bytes = int(options["bytes"])
        self._partitions = int(options["partitions"])
        self._records = int(options["records"]) // self._partitions

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batch = self._batch(max(1, _BATCH_BYTES // self._bytes))
        left = self._records
        while left > 0:
            yield batch.slice(0, left)
            left -= batch.num_rows

    def _batch(self, rows: int) -> pa.RecordBatch:
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_schema

        schema = to_arrow_schema(self._schema, timezone="UTC")
        made = {
            "key": lambda kind: pa.nulls(rows, kind),
            "value": lambda kind: pa.array([os.urandom(self._bytes) for _ in range(rows)], kind),
            "topic": lambda kind: pa.array(["records"] * rows, kind),
        }
        numbers = pa.array(range(rows), pa.int64())
        arrays = [
            made[field.name](field.type) if field.name in made else numbers.cast(field.type)
            for field in schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
