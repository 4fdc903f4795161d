"""The readers that `format("lakelog")` creates.

Spark plans each batch query in new processes, one of which only asks for the columns. A process
therefore imports a reader when it creates one.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from lakelog.spark.schema import check_schema, source_schema
from lakelog.spark.source.options import parse_source_options

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from lakelog.spark.source.batch import BatchReader
    from lakelog.spark.source.stream import StreamReader


_PUSHDOWN = "pyspark.sql.worker.data_source_pushdown_filters"


def schema_of(options: Mapping[str, str]) -> StructType:
    """Return the columns of a query that has no schema of its own.

    Spark calls this before it is known whether the query streams, so options of batch queries pass
    here and are rejected later. Raises `OptionError`.
    """
    given = parse_source_options(options, streaming=False)
    return source_schema(
        given.columns,
        include_headers=given.include_headers,
        null_timestamps=given.null_timestamps,
    )


def batch_reader(options: Mapping[str, str], schema: StructType) -> BatchReader:
    """Return the reader of a batch query. Raises `OptionError`."""
    from lakelog.spark.source.batch import BatchReader, PushdownReader

    check_schema(schema)
    given = parse_source_options(options, streaming=False)
    reader = PushdownReader if given.prunes and _pushes_filters() else BatchReader
    return reader(given, schema)


def stream_reader(options: Mapping[str, str], schema: StructType) -> StreamReader:
    """Return the reader of a streaming query. Raises `OptionError`."""
    from lakelog.spark.source.stream import StreamReader

    check_schema(schema)
    return StreamReader(parse_source_options(options, streaming=True), schema)


def _pushes_filters() -> bool:
    """Return whether this process plans a read with filters; Spark has a program for that."""
    main = getattr(sys.modules["__main__"], "__spec__", None)
    return _PUSHDOWN in sys.modules or (main is not None and main.name == _PUSHDOWN)
