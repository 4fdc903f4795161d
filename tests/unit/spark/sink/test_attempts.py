from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from lakelog.base.errors import ErrorCode
from lakelog.client.sink import (
    AnotherQueryError,
    BatchAheadError,
    BatchCommittedError,
    QueryRun,
    Receipt,
    SinkError,
)
from lakelog.spark.sink import attempts
from lakelog.spark.sink.attempts import Attempt, Job, streaming_job, write_attempt
from lakelog.spark.sink.content import Content, content_of
from lakelog.spark.sink.control import Batch
from lakelog.spark.sink.errors import BatchOrderError, OtherQueryError
from lakelog.spark.sink.options import Repeated, SinkOptions
from lakelog.tables.topic.errors import OptionError

OPTIONS = SinkOptions(bootstrap="h:1", topic="t")
JOB = Job("s", Batch("q", "r", 7))
ROWS = [pa.RecordBatch.from_pydict({"value": [b"a", b"b"]})]
RUN = QueryRun("lk-sink-s", "q", "r", 9, 4, 8)
RECEIPT = Receipt("lk-sink-s/7/3/11", 20, 0, ())


class FakeTask:
    def __init__(self, **properties: str) -> None:
        self.properties = properties
        self.partition = 3

    def partitionId(self) -> int:  # noqa: N802
        return self.partition

    def taskAttemptId(self) -> int:  # noqa: N802
        return 11

    def getLocalProperty(self, key: str) -> str | None:  # noqa: N802
        return self.properties.get(key.replace(".", "_"))


class Cluster:
    """The answers of the fake sink and producer, and the calls of both."""

    def __init__(self) -> None:
        self.next_batch = 7
        self.begin_error: Exception | None = None
        self.open_error: Exception | None = None
        self.send_error: Exception | None = None
        self.calls: list[Any] = []


STATE = Cluster()


class FakeSink:
    def __init__(self, bootstrap: str, sink_id: str, **settings: Any) -> None:
        STATE.calls.append(("connect", sink_id))

    def begin(self, query_id: str, run_id: str, batch: int, *, expires: bool) -> QueryRun:
        if STATE.begin_error is not None:
            raise STATE.begin_error
        return QueryRun("lk-sink-s", query_id, run_id, 9, 4, STATE.next_batch)

    def close(self) -> None:
        STATE.calls.append("close sink")


class FakeProducer:
    is_usable = True

    def __init__(self, bootstrap: str, **settings: Any) -> None: ...

    def open(self, run: QueryRun, *place: int) -> None:
        if STATE.open_error is not None:
            raise STATE.open_error
        STATE.calls.append(("open", *place))

    def send_table(self, rows: pa.RecordBatch, topic: str | None) -> None:
        STATE.calls += rows.column("value").to_pylist()

    def flush(self) -> None:
        if STATE.send_error is not None:
            raise STATE.send_error

    def finish(self) -> Receipt:
        return RECEIPT

    def close(self, timeout_s: float) -> None:
        STATE.calls.append("close producer")


@pytest.fixture(autouse=True)
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    STATE.__init__()  # type: ignore[misc]
    monkeypatch.setattr(attempts, "Sink", FakeSink)
    monkeypatch.setattr(attempts, "SinkProducer", FakeProducer)
    yield STATE
    attempts._kept.clear()


def test_a_task_writes_in_a_transaction_of_its_attempt(cluster: Cluster) -> None:
    done = write_attempt(ROWS, OPTIONS, JOB, FakeTask())
    assert done.receipt == RECEIPT
    assert done.content == content_of(ROWS[0], "t")
    assert done.run.next_batch == 7
    assert cluster.calls == [("connect", "lk-sink-s"), ("open", 7, 3, 11), b"a", b"b"]


def test_the_next_task_of_a_worker_uses_the_same_connections(cluster: Cluster) -> None:
    for _ in range(2):
        write_attempt(ROWS, OPTIONS, JOB, FakeTask())
    assert cluster.calls.count(("connect", "lk-sink-s")) == 1


def test_a_task_that_finds_its_batch_committed_writes_nothing(cluster: Cluster) -> None:
    cluster.next_batch = 8
    rows = content_of(ROWS[0], "t")
    assert write_attempt(ROWS, OPTIONS, JOB, FakeTask()) == Attempt(RUN, None, rows)
    cluster.next_batch = 7
    cluster.open_error = BatchCommittedError(ErrorCode.INVALID_TXN_STATE, "meanwhile")
    found = write_attempt(ROWS, OPTIONS, JOB, FakeTask())
    assert (found.receipt, found.content) == (None, rows)
    assert cluster.calls == [("connect", "lk-sink-s")]


def test_rows_that_are_not_compared_are_not_computed(cluster: Cluster) -> None:
    cluster.next_batch = 8
    options = replace(OPTIONS, repeated=Repeated.ANY)
    rows = iter(ROWS)
    assert write_attempt(rows, options, JOB, FakeTask()) == Attempt(RUN, None, Content())
    assert [*rows] == ROWS


@pytest.mark.parametrize(("sink_id", "warns"), [("", True), ("mine", False)])
def test_the_first_batch_of_an_unnamed_sink_warns(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, sink_id: str, warns: bool
) -> None:
    options = replace(OPTIONS, sink_id=sink_id)
    task = FakeTask(sql_streaming_queryId="q", streaming_sql_batchId="7", spark_jobGroup_id="r")
    task.partition = 0
    job = streaming_job(options, task)
    write_attempt(ROWS, options, job, task)
    assert not caplog.messages
    cluster.next_batch = -1
    write_attempt(ROWS, options, job, task)
    assert ["begins a new sink" in text for text in caplog.messages] == [True] * warns


@pytest.mark.parametrize("next_batch", [6, 9])
def test_a_checkpoint_that_does_not_fit_is_refused(cluster: Cluster, next_batch: int) -> None:
    cluster.next_batch = next_batch
    with pytest.raises(BatchOrderError, match="sink 's'"):
        write_attempt(ROWS, OPTIONS, JOB, FakeTask())


@pytest.mark.parametrize("error", [BatchCommittedError, BatchAheadError])
def test_a_run_that_may_not_begin_at_its_batch_names_the_checkpoint(
    cluster: Cluster, error: type[SinkError]
) -> None:
    cluster.begin_error = error(ErrorCode.INVALID_TXN_STATE, "the next batch is 12")
    with pytest.raises(BatchOrderError, match=r"next batch is 12.*checkpoint"):
        write_attempt(ROWS, OPTIONS, JOB, FakeTask())


def test_the_first_batch_of_a_sink_has_any_number(cluster: Cluster) -> None:
    cluster.next_batch = -1
    assert write_attempt(ROWS, OPTIONS, JOB, FakeTask()).receipt == RECEIPT


def test_a_refusal_of_the_coordinator_names_the_option(cluster: Cluster) -> None:
    cluster.begin_error = AnotherQueryError(ErrorCode.INVALID_TXN_STATE, "belongs to p")
    with pytest.raises(OtherQueryError, match="'sinkGeneration'"):
        write_attempt(ROWS, OPTIONS, JOB, FakeTask())


def test_a_failed_task_closes_its_clients(cluster: Cluster) -> None:
    cluster.send_error = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        write_attempt(ROWS, OPTIONS, JOB, FakeTask())
    assert cluster.calls[-2:] == ["close producer", "close sink"]
    cluster.send_error = None
    write_attempt(ROWS, OPTIONS, JOB, FakeTask())
    assert cluster.calls.count(("connect", "lk-sink-s")) == 2


def test_a_streaming_task_knows_its_batch() -> None:
    task = FakeTask(sql_streaming_queryId="q", streaming_sql_batchId="7", spark_jobGroup_id="r")
    assert streaming_job(OPTIONS, task) == Job("q", Batch("q", "r", 7), is_unnamed=True)
    named = SinkOptions(bootstrap="h:1", sink_id="mine", generation=2)
    assert streaming_job(named, task).sink_id == "lk-sink-mine#2"
    with pytest.raises(OptionError, match="outside of a streaming query"):
        streaming_job(OPTIONS, FakeTask())
