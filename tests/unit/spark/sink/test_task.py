from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from lakelog.base.errors import ErrorCode
from lakelog.base.murmur2 import partition_for_key
from lakelog.client.errors import ClientError, NotWrittenError, TopicNotFoundError
from lakelog.spark.schema import SCHEMA_WITH_HEADERS, arrow_schema
from lakelog.spark.sink import task
from lakelog.spark.sink.options import RowError, SinkError, SinkOptions
from lakelog.spark.sink.task import (
    ROUTED,
    Router,
    check_columns,
    fenced,
    named_errors,
    record_columns,
    write_rows,
)
from lakelog.tables.topic.errors import OptionError

OPTIONS = SinkOptions(bootstrap="h:1", topic="t", transaction_timeout_ms=5000)


class FakeProducer:
    """Accepts tables; `error` is raised by the flush after the value `bad`."""

    def __init__(self, error: ClientError | None = None) -> None:
        self.error = error
        self.sent: list[Any] = []
        self.flushes = 0

    def __enter__(self) -> FakeProducer:
        return self

    def __exit__(self, *error: object) -> None: ...

    def send_table(self, rows: pa.RecordBatch, topic: str | None) -> None:
        assert topic == "t"
        self.sent += rows.column("value").to_pylist()

    def flush(self) -> None:
        self.flushes += 1
        if self.error is not None and b"bad" in self.sent:
            raise self.error


def rows(*values: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": list(values)})


def write(producer: FakeProducer, *batches: pa.RecordBatch) -> int:
    return write_rows(batches, lambda: producer, OPTIONS)  # type: ignore[arg-type,return-value]


def test_a_task_returns_after_all_records_are_acknowledged() -> None:
    producer = FakeProducer()
    assert write(producer, rows(b"a", b"b"), rows(b"c")) == 3
    assert producer.sent == [b"a", b"b", b"c"]
    assert producer.flushes == 1
    assert write(FakeProducer()) == 0


def test_a_task_fails_with_any_record() -> None:
    lost = NotWrittenError(ErrorCode.NOT_ENOUGH_REPLICAS, "lost")
    with pytest.raises(NotWrittenError, match="lost"):
        write(FakeProducer(lost), rows(b"a", b"bad", b"c"))


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (TopicNotFoundError("t", hint="Did you mean 'u'?"), "correct the option 'topic'. Did you"),
        (
            NotWrittenError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "row 1: partition 9"),
            "column 'partition': row 1: partition 9",
        ),
        (
            ClientError(ErrorCode.INVALID_RECORD, "row 1: a header without a key"),
            "^column 'headers': row 1: a header without a key$",
        ),
        (
            NotWrittenError(ErrorCode.INVALID_RECORD, "no record without a key"),
            "^column 'key': no record without a key: fill it, or change cleanup.policy",
        ),
        (
            NotWrittenError(ErrorCode.INVALID_RECORD, "9 bytes of records, more than 8"),
            "^the broker rejects a row: 9 bytes of records, more than 8$",
        ),
        (
            NotWrittenError(ErrorCode.MESSAGE_TOO_LARGE, "a record of 9 bytes"),
            r"'kafka.max.request.size' \(1048576 bytes\) and max.message.bytes",
        ),
        (ClientError(ErrorCode.INVALID_TIMESTAMP, "far"), "column 'timestamp': far"),
    ],
)
def test_an_error_of_a_row_names_the_option_or_column(error: ClientError, text: str) -> None:
    with pytest.raises(RowError, match=text), named_errors(OPTIONS):
        raise error


def test_a_row_without_a_topic_names_column_and_option() -> None:
    error = NotWrittenError(ErrorCode.INVALID_TOPIC_EXCEPTION, "row 3: the topic is null")
    text = "column 'topic': row 3: the topic is null: fill it, or set the option 'topic'"
    with pytest.raises(RowError, match=text), named_errors(SinkOptions(bootstrap="h:1")):
        raise error


def test_a_timeout_above_the_limit_of_the_broker_is_named() -> None:
    text = r"'kafka.transaction.timeout.ms' \(5000\) is above"
    with pytest.raises(SinkError, match=text), named_errors(OPTIONS):
        raise ClientError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)


def test_other_errors_pass() -> None:
    with pytest.raises(ClientError) as caught, named_errors(OPTIONS):
        raise ClientError(ErrorCode.NOT_COORDINATOR, "moved")
    assert caught.value.code is ErrorCode.NOT_COORDINATOR


def test_a_fenced_batch_is_explained_by_its_duration() -> None:
    error = ClientError(ErrorCode.PRODUCER_FENCED, "fenced")
    late = str(fenced(error, OPTIONS, 6000.0))
    assert "took 6.0 s, longer than the option 'kafka.transaction.timeout.ms' (5000)" in late
    assert "another run of the query has taken over" in str(fenced(error, OPTIONS, 10.0))


def test_a_worker_exempts_its_modules_from_collection_after_the_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[int] = []
    producer = FakeProducer()
    monkeypatch.setattr(task, "exempt_modules", lambda: calls.append(producer.flushes))
    batches = [pa.record_batch({"value": [b"a"]})]
    assert write_rows(batches, lambda: producer, OPTIONS) == 1  # type: ignore[arg-type, return-value]
    assert calls == [1]


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
