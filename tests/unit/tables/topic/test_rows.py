from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from lakelog.client.consumer.batches import Batch
from lakelog.columns.decoding.groups import column_types
from lakelog.records.batch import read_header
from lakelog.records.builder import BatchBuilder
from lakelog.tables.topic.errors import BadRecordError
from lakelog.tables.topic.ranges import OffsetRange
from lakelog.tables.topic.rows import ArrowRows

TYPES = {**column_types(), "topic": pa.string(), "partition": pa.int32()}
WANTED = OffsetRange("t", 3, 0, 10**6)


def batch(base: int, count: int = 1, time: int = 1500) -> Batch:
    """Return records at `time` plus their offset; every second one has no key and no value."""
    builder = BatchBuilder()
    for offset in range(base, base + count):
        key, value = (None, None) if offset % 2 else (b"k", b"v")
        builder.append(time + offset, key, value, [("h", None)])
    data = builder.build(base_offset=base)
    return read_header(data), memoryview(data)


def schema(*names: str) -> pa.Schema:
    """The schema with these columns, by default all of them."""
    return pa.schema([(name, TYPES[name]) for name in names or TYPES])


def rows(*names: str, null_timestamps: bool = False) -> ArrowRows:
    return ArrowRows(schema(*names), null_timestamps=null_timestamps, hint="Do this")


def test_every_column_in_the_types_of_the_schema() -> None:
    [found] = rows().convert(WANTED, [batch(0), batch(1)])

    assert found.schema == schema()
    assert found.to_pylist()[1] == {
        "key": None,
        "value": None,
        "topic": "t",
        "partition": 3,
        "offset": 1,
        "timestamp": datetime.fromtimestamp(1.501, UTC),
        "timestampType": 0,
        "headers": [{"key": "h", "value": None}],
        "rawTimestamp": None,
    }


def test_columns_that_are_the_same_for_all_records_need_no_others() -> None:
    [found] = rows("topic", "partition").convert(WANTED, [batch(0, 5)])

    assert found.to_pylist() == [{"topic": "t", "partition": 3}] * 5
    [other] = rows("topic", "partition").convert(OffsetRange("uß", 7, 0, 9), [batch(0, 3)])
    assert other.to_pylist() == [{"topic": "uß", "partition": 7}] * 3


def test_small_batches_are_put_together_and_large_ones_are_not() -> None:
    offsets = rows("offset")

    assert [b.num_rows for b in offsets.convert(WANTED, [batch(i) for i in range(5)])] == [5]
    large = [batch(0, 40_000), batch(40_000, 40_000)]
    assert [b.num_rows for b in offsets.convert(WANTED, large)] == [40_000] * 2


def test_an_impossible_timestamp_is_an_error_that_names_its_place() -> None:
    bad = batch(7, time=2**62)

    with pytest.raises(BadRecordError, match=rf"^t-3@7: the timestamp {2**62 + 7} .* Do this$"):
        list(rows("offset", "timestamp").convert(WANTED, [batch(0), bad]))

    [found] = rows(null_timestamps=True).convert(WANTED, [batch(0), bad])
    assert found["timestamp"][1].as_py() is None
    assert found["rawTimestamp"].to_pylist() == [None, 2**62 + 7]


def test_a_damaged_batch_is_an_error_that_names_its_place() -> None:
    header, data = batch(7, 3)
    data[65] ^= 0xFF

    with pytest.raises(BadRecordError, match=r"^t-3: the batch at offset 7 is damaged"):
        list(rows("offset", "timestamp").convert(WANTED, [batch(0), (header, data)]))
