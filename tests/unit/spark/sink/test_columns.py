from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from lakelog.spark.schema import SCHEMA_WITH_HEADERS
from lakelog.spark.sink.columns import check_columns, record_columns, records
from lakelog.spark.sink.errors import RowError
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


def test_every_column_becomes_a_part_of_the_record() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "value": ["v", None],
            "key": [None, "k"],
            "partition": pa.array([2, None], pa.int32()),
            "headers": [[{"key": "h", "value": b"x"}], None],
            "timestamp": pa.array(
                [datetime(1970, 1, 1, 0, 0, 1, 234567, UTC), None], pa.timestamp("us", "UTC")
            ),
        }
    )
    first, second = records(batch, "t")
    assert first == {
        "topic": "t",
        "value": b"v",
        "key": None,
        "headers": [("h", b"x")],
        "partition": 2,
        "timestamp_ms": 1234,
    }
    assert (second["key"], second["value"], second["headers"]) == (b"k", None, [])
    assert (second["partition"], second["timestamp_ms"]) == (None, None)


def test_the_option_topic_takes_precedence_over_the_column() -> None:
    batch = pa.RecordBatch.from_pydict({"value": [b"v"], "topic": ["column"]})
    assert [row["topic"] for row in records(batch, "option")] == ["option"]
    assert [row["topic"] for row in records(batch, None)] == ["column"]


def test_a_row_without_a_topic_is_rejected() -> None:
    batch = pa.RecordBatch.from_pydict({"value": [b"v"], "topic": pa.array([None], pa.string())})
    with pytest.raises(RowError, match="a row has no topic: set the option 'topic'"):
        list(records(batch, None))
