from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from lakelog.base.murmur2 import partition_for_key
from lakelog.spark.schema import arrow_schema
from lakelog.spark.sink.errors import RowError
from lakelog.spark.sink.routing import ROUTED, Router


def test_a_key_selects_the_partition_unless_the_row_has_one() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "value": [b"1", b"2"],
            "key": [b"k", b"k"],
            "partition": pa.array([None, 4], pa.int32()),
        }
    )
    routed = Router("t", lambda topic: 7, 0).route(batch)
    assert routed.schema.equals(arrow_schema(ROUTED))
    assert routed.column("partition").to_pylist() == [partition_for_key(b"k", 7), 4]
    assert routed.column("topic").to_pylist() == ["t", "t"]
    assert routed.column("value").to_pylist() == [b"1", b"2"]


def test_rows_without_a_key_are_dealt_to_all_partitions() -> None:
    batch = pa.RecordBatch.from_pydict({"value": [b"v"] * 3000})
    for start in (0, 5):
        routed = Router("t", lambda topic: 3, start).route(batch)
        counts = Counter(routed.column("partition").to_pylist())
        assert set(counts) == {0, 1, 2}
        assert min(counts.values()) > 600


def test_headers_and_timestamps_pass() -> None:
    headers = [[{"key": "h", "value": b"x"}, {"key": "e", "value": None}]]
    batch = pa.RecordBatch.from_pydict({"value": [b"v"], "headers": headers, "timestamp": [17]})
    (row,) = Router("t", lambda topic: 1, 0).route(batch).to_pylist()
    assert row["headers"] == headers[0]
    assert row["timestamp"] == 17


@pytest.mark.parametrize(("partition", "count", "known"), [(3, 3, "3 partitions"), (-1, 1, "1 p")])
def test_a_partition_that_the_topic_lacks_is_rejected(
    partition: int, count: int, known: str
) -> None:
    batch = pa.RecordBatch.from_pydict(
        {"value": [b"v"], "partition": pa.array([partition], pa.int32())}
    )
    with pytest.raises(RowError, match=rf"'partition' is {partition}, but topic 't' has {known}"):
        Router("t", lambda topic: count, 0).route(batch)
