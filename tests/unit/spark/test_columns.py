from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from lakelog.records.record import Record
from lakelog.spark.broker import Chunk
from lakelog.spark.columns import (
    SCHEMA_WITH_HEADERS,
    ArrowRows,
    arrow_schema,
    check_schema,
    source_schema,
)
from lakelog.spark.errors import OptionError


def record(offset: int, value: bytes | None = b"v") -> Record:
    return Record(offset, 1500 + offset, None if offset % 2 else b"k", value, (("h", None),))


def test_every_column_in_the_connectors_types() -> None:
    rows = ArrowRows(arrow_schema(SCHEMA_WITH_HEADERS))

    [batch] = rows.convert("t", 3, [Chunk(1, [record(0), record(1, None)])])

    assert batch.schema == arrow_schema(SCHEMA_WITH_HEADERS)
    assert batch.to_pylist()[1] == {
        "key": None,
        "value": None,
        "topic": "t",
        "partition": 3,
        "offset": 1,
        "timestamp": datetime.fromtimestamp(1.501, UTC),
        "timestampType": 1,
        "headers": [{"key": "h", "value": None}],
    }


def test_small_chunks_are_put_together_and_large_ones_are_not() -> None:
    rows = ArrowRows(arrow_schema(source_schema(("offset",), include_headers=False)))
    small = [Chunk(0, [record(i)]) for i in range(5)]

    assert [batch.num_rows for batch in rows.convert("t", 0, small)] == [5]

    large = [Chunk(0, [record(i) for i in range(10_000)])] * 2
    assert [batch.num_rows for batch in rows.convert("t", 0, large)] == [10_000] * 2


def test_columns_are_chosen_by_name_without_case() -> None:
    assert source_schema(("VALUE", "timestamptype"), include_headers=False).fieldNames() == [
        "value",
        "timestampType",
    ]
    with pytest.raises(OptionError, match="no 'size'"):
        source_schema(("size",), include_headers=False)


def test_a_schema_may_only_choose() -> None:
    check_schema(StructType([SCHEMA_WITH_HEADERS["offset"], SCHEMA_WITH_HEADERS["value"]]))
    with pytest.raises(OptionError, match="not value string"):
        check_schema(StructType([StructField("value", StringType())]))
