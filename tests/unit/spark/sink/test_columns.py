from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from lakelog.base.murmur2 import partition_for_key
from lakelog.spark.schema import SCHEMA_WITH_HEADERS, arrow_schema
from lakelog.spark.sink.columns import ROUTED, Router, check_columns, record_columns
from lakelog.spark.sink.options import RowError
from lakelog.tables.topic.errors import OptionError


def columns(text: str) -> StructType:
    """Return a schema from `name type` pairs, without a session of Spark."""
    fields = [pair.split(" ") for pair in text.split(", ")]
    return StructType.fromJson(
        {
            "type": "struct",
            "fields": [
                {"name": name, "type": kind, "nullable": True, "metadata": {}}
                for name, kind in fields
            ],
        }
    )


def test_the_columns_of_the_official_connector_are_accepted() -> None:
    check_columns(columns("value binary"), "t")
    check_columns(columns("key string, value string, topic string, partition integer"), None)
    check_columns(columns("value string, timestamp timestamp"), "t")
    check_columns(columns("value string, timestamp long"), "t")


def test_columns_that_a_record_does_not_have_are_ignored() -> None:
    """All columns of the source can be written, as with the official connector."""
    check_columns(SCHEMA_WITH_HEADERS, None)
    assert record_columns(SCHEMA_WITH_HEADERS.fieldNames()) == [
        "key",
        "value",
        "topic",
        "partition",
        "timestamp",
        "headers",
    ]


@pytest.mark.parametrize(
    ("fields", "topic", "text"),
    [
        ("value integer", "t", "column 'value' must be binary or string, not int"),
        ("value string, partition long", "t", "column 'partition' must be int, not bigint"),
        ("value string, topic binary", None, "column 'topic' must be string, not binary"),
        ("key string", "t", "missing column 'value'"),
        ("value string", None, "set the option 'topic' or add a column 'topic'"),
    ],
)
def test_other_columns_are_rejected_by_name(fields: str, topic: str | None, text: str) -> None:
    with pytest.raises(OptionError, match=text):
        check_columns(columns(fields), topic)


def routed(batch: pa.RecordBatch, topic: str | None = "t") -> list[dict[str, object]]:
    return list(Router(topic, lambda topic: 7, 0).route(batch).to_pylist())


def test_every_column_is_in_the_routed_row() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "value": ["v", None],
            "key": [None, "k"],
            "partition": pa.array([2, None], pa.int32()),
            "headers": [[{"key": "h", "value": b"x"}], []],
            "timestamp": pa.array(
                [datetime(1970, 1, 1, 0, 0, 1, 234567, UTC), None], pa.timestamp("us", "UTC")
            ),
        }
    )
    first, second = routed(batch)
    assert first == {
        "topic": "t",
        "value": b"v",
        "key": None,
        "headers": [{"key": "h", "value": b"x"}],
        "partition": 2,
        "timestamp": 1234,
    }
    assert (second["key"], second["value"], second["headers"]) == (b"k", None, None)
    assert (second["partition"], second["timestamp"]) == (partition_for_key(b"k", 7), None)


def test_the_option_topic_takes_precedence_over_the_column() -> None:
    batch = pa.RecordBatch.from_pydict({"value": [b"v"], "topic": ["column"]})
    assert [row["topic"] for row in routed(batch, "option")] == ["option"]
    assert [row["topic"] for row in routed(batch, None)] == ["column"]


def test_a_row_without_a_topic_is_rejected() -> None:
    batch = pa.RecordBatch.from_pydict({"value": [b"v"], "topic": pa.array([None], pa.string())})
    with pytest.raises(RowError, match="a row has no topic: set the option 'topic'"):
        routed(batch, None)


def test_a_key_selects_the_partition_unless_the_row_has_one() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "value": [b"1", b"2"],
            "key": [b"k", b"k"],
            "partition": pa.array([None, 4], pa.int32()),
        }
    )
    found = Router("t", lambda topic: 7, 0).route(batch)
    assert found.schema.equals(arrow_schema(ROUTED))
    assert found.column("partition").to_pylist() == [partition_for_key(b"k", 7), 4]
    assert found.column("topic").to_pylist() == ["t", "t"]
    assert found.column("value").to_pylist() == [b"1", b"2"]


def test_rows_without_a_key_are_dealt_to_all_partitions() -> None:
    batch = pa.RecordBatch.from_pydict({"value": [b"v"] * 3000})
    for start in (0, 5):
        found = Router("t", lambda topic: 3, start).route(batch)
        counts = Counter(found.column("partition").to_pylist())
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
