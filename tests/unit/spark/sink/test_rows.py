from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from lakelog.spark.sink.errors import RowError
from lakelog.spark.sink.rows import records


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
