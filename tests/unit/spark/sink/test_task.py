from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lakelog.base.errors import ErrorCode
from lakelog.client.errors import ClientError, NotWrittenError, TopicNotFoundError
from lakelog.spark.sink import task
from lakelog.spark.sink.options import RowError, SinkError, SinkOptions
from lakelog.spark.sink.task import fenced, named_errors, write_rows

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
