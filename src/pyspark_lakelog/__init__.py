"""The data source `lakelog`, which PySpark finds by the name of this module.

At the first unknown format Spark imports every installed `pyspark_*` module, and a failing module
breaks all Python data sources of the session. This module therefore imports nothing but the
standard library and PySpark; it imports the rest when a query is planned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):  # type: ignore[misc]
    """`spark.read`, `readStream`, `write` and `writeStream` with `format("lakelog")`."""

    @classmethod
    def name(cls) -> str:
        return "lakelog"

    def schema(self) -> StructType:
        from lakelog.spark.python_processes import without_traceback
        from lakelog.spark.source.readers import schema_of

        with without_traceback():
            return schema_of(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        from lakelog.spark.python_processes import without_traceback
        from lakelog.spark.source.readers import batch_reader

        with without_traceback():
            return batch_reader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from lakelog.spark.python_processes import without_traceback
        from lakelog.spark.source.readers import stream_reader

        with without_traceback():
            return stream_reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from lakelog.spark.python_processes import without_traceback
        from lakelog.spark.sink.writers import batch_writer

        with without_traceback():
            return batch_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        from lakelog.spark.python_processes import without_traceback
        from lakelog.spark.sink.writers import stream_writer

        with without_traceback():
            return stream_writer(self.options, schema)
