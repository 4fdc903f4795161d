from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from lakelog.client.isolation import Batch
from lakelog.records.batch import read_header
from lakelog.records.builder import BatchBuilder
from lakelog.spark.columns import (
    SCHEMA,
    SCHEMA_WITH_HEADERS,
    ArrowRows,
    arrow_schema,
    check_schema,
    source_schema,
)
from lakelog.spark.errors import BadRecordError, OptionError
from lakelog.spark.planning import OffsetRange

WANTED = OffsetRange("t", 3, 0, 10**6)


def batch(base: int, count: int = 1, time: int = 1500) -> Batch:
    """Records at `time` plus their offset, every second one without key and value."""
    builder = BatchBuilder()
    for offset in range(base, base + count):
        key, value = (None, None) if offset % 2 else (b"k", b"v")
        builder.append(time + offset, key, value, [("h", None)])
    data = builder.build(base_offset=base)
    return read_header(data), memoryview(data)


def rows(schema: StructType, *, null_timestamps: bool = False) -> ArrowRows:
    return ArrowRows(arrow_schema(schema), null_timestamps=null_timestamps, way_on="Do this")


def test_every_column_in_the_connectors_types() -> None:
    [found] = rows(SCHEMA_WITH_HEADERS).convert(WANTED, [batch(0), batch(1)])

    assert found.schema == arrow_schema(SCHEMA_WITH_HEADERS)
    assert found.to_pylist()[1] == {
        "key": None,
        "value": None,
        "topic": "t",
        "partition": 3,
        "offset": 1,
        "timestamp": datetime.fromtimestamp(1.501, UTC),
        "timestampType": 0,
        "headers": [{"key": "h", "value": None}],
    }


def test_columns_that_are_the_same_for_all_records_need_no_others() -> None:
    schema = StructType([SCHEMA_WITH_HEADERS["topic"], SCHEMA_WITH_HEADERS["partition"]])

    [found] = rows(schema).convert(WANTED, [batch(0, 5)])

    assert found.to_pylist() == [{"topic": "t", "partition": 3}] * 5


def test_small_batches_are_put_together_and_large_ones_are_not() -> None:
    offsets = rows(source_schema(("offset",), include_headers=False, null_timestamps=False))

    assert [b.num_rows for b in offsets.convert(WANTED, [batch(i) for i in range(5)])] == [5]
    large = [batch(0, 40_000), batch(40_000, 40_000)]
    assert [b.num_rows for b in offsets.convert(WANTED, large)] == [40_000] * 2


def test_an_impossible_timestamp_is_an_error_that_names_its_place() -> None:
    bad = batch(7, time=2**62)

    with pytest.raises(BadRecordError, match=rf"^t-3@7: the timestamp {2**62 + 7} .* Do this$"):
        list(rows(SCHEMA).convert(WANTED, [batch(0), bad]))

    wide = source_schema((), include_headers=False, null_timestamps=True)
    [found] = rows(wide, null_timestamps=True).convert(WANTED, [batch(0), bad])
    assert found["timestamp"][1].as_py() is None
    assert found["rawTimestamp"].to_pylist() == [None, 2**62 + 7]


def test_a_damaged_batch_is_an_error_that_names_its_place() -> None:
    header, data = batch(7, 3)
    data[65] ^= 0xFF

    with pytest.raises(BadRecordError, match=r"^t-3: the batch at offset 7 is damaged"):
        list(rows(SCHEMA).convert(WANTED, [batch(0), (header, data)]))


def test_columns_are_chosen_by_name_without_case() -> None:
    assert source_schema(
        ("VALUE", "timestamptype"), include_headers=False, null_timestamps=False
    ).fieldNames() == [
        "value",
        "timestampType",
    ]
    with pytest.raises(OptionError, match="no 'size'"):
        source_schema(("size",), include_headers=False, null_timestamps=False)


def test_a_schema_may_only_choose() -> None:
    check_schema(StructType([SCHEMA_WITH_HEADERS["offset"], SCHEMA_WITH_HEADERS["value"]]))
    with pytest.raises(OptionError, match="not value string"):
        check_schema(StructType([StructField("value", StringType())]))
