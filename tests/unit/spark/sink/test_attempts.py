from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from lakelog.base.errors import ErrorCode
from lakelog.client import sink as client
from lakelog.client import sink as sinks
from lakelog.client.errors import ClientError, UnsupportedError
from lakelog.client.sink import (
    AnotherQueryError,
    BatchAheadError,
    BatchCommittedError,
    QueryRun,
    Receipt,
    SinkControl,
    SinkError,
)
from lakelog.protocol.commit_sets import SinkState
from lakelog.spark.sink import attempts
from lakelog.spark.sink import options as errors
from lakelog.spark.sink.attempts import (
    Attempt,
    Job,
    named_refusals,
    retire_lower,
    retired_by,
    streaming_job,
    write_attempt,
)
from lakelog.spark.sink.control import Batch, Content, content_of
from lakelog.spark.sink.options import BatchOrderError, OtherQueryError, Repeated, SinkOptions
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

    def open(self, run: QueryRun, *identity: int) -> None:
        if STATE.open_error is not None:
            raise STATE.open_error
        STATE.calls.append(("open", *identity))

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
    monkeypatch.setattr(sinks, "Sink", FakeSink)
    monkeypatch.setattr(sinks, "SinkProducer", FakeProducer)
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


SHORT_OPTIONS = SinkOptions(bootstrap="h:1", transaction_timeout_ms=5000)
CODE = ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize(
    ("refusal", "kind", "option"),
    [
        (client.AnotherQueryError, errors.OtherQueryError, "'sinkId'.*'sinkGeneration'"),
        (client.BatchAheadError, errors.BatchOrderError, "'sinkGeneration'"),
        (client.RunFencedError, errors.FencedError, "'sinkId'"),
        (
            client.TransactionNotOpenError,
            errors.FencedError,
            r"'kafka.transaction.timeout.ms' \(5000\).*'maxOffsetsPerTrigger'",
        ),
        (client.BatchCommittedError, errors.BatchOrderError, "'sinkGeneration'"),
        (client.RunLimitError, errors.SinkError, "lakelog txn remove"),
        (client.RecordsLostError, errors.LostRecordsError, "start the query again.*fsync"),
        (client.SinkLimitError, errors.SinkError, "fewer tasks"),
        (client.NotASinkError, errors.SinkError, "another 'sinkId'"),
    ],
)
def test_a_refusal_names_the_option(
    refusal: type[client.SinkError], kind: type[Exception], option: str
) -> None:
    with pytest.raises(kind, match=f"(?s)the reason.*{option}"), named_refusals(SHORT_OPTIONS):
        raise refusal(CODE, "the reason")


def test_a_query_that_a_full_refresh_replaced_is_named() -> None:
    record = SinkState(query_id="generation 3", run_id="generation 3")
    text = "at generation 3, this query at 0.*'sinkGeneration'"
    with pytest.raises(errors.OldGenerationError, match=text), named_refusals(SHORT_OPTIONS):
        raise client.AnotherQueryError(CODE, "the reason", record)


def test_a_broker_without_commit_sets_is_named() -> None:
    text = r"'delivery': broker 1 does not.*at-least-once.*foreachBatch"
    with pytest.raises(errors.UnsupportedDeliveryError, match=text), named_refusals(SHORT_OPTIONS):
        raise UnsupportedError("broker 1 does not support commit sets")


def test_other_errors_pass() -> None:
    with pytest.raises(ClientError, match="moved"), named_refusals(SHORT_OPTIONS):
        raise ClientError(ErrorCode.NOT_COORDINATOR, "moved")


class RetiredSink:
    """The control record of one generation; `racing` queries begin after its removal."""

    def __init__(self, query_id: str | None, racing: int = 0) -> None:
        self.query_id = query_id
        self.racing = racing
        self.calls: list[str] = []

    def __enter__(self) -> RetiredSink:
        return self

    def __exit__(self, *error: object) -> None: ...

    def read(self) -> SinkControl | None:
        return None if self.query_id is None else SinkControl(self.query_id, "r", 7, ())

    def remove(self) -> None:
        self.calls.append("remove")
        self.query_id = None

    def begin(self, query_id: str, run_id: str, batch: int) -> None:
        if self.racing:
            self.racing -= 1
            self.query_id = "old"
            raise AnotherQueryError(ErrorCode.INVALID_TXN_STATE, "meanwhile")
        self.query_id = query_id


def retire(generation: int, sinks: dict[int, RetiredSink]) -> None:
    def open_sink(lower: int) -> Any:
        return sinks.setdefault(lower, RetiredSink(None))

    retire_lower(open_sink, generation)


def test_lower_generations_are_claimed_once() -> None:
    sinks = {0: RetiredSink("q"), 2: RetiredSink("p")}
    for _ in range(2):
        retire(3, sinks)
    assert sorted(sinks) == [0, 1, 2]
    assert (sinks[0].query_id, sinks[0].calls) == ("generation 3", ["remove"])
    assert (sinks[1].query_id, sinks[1].calls) == (None, [])
    assert retired_by(str(sinks[2].query_id)) == "3"
    assert retired_by("q") is None


def test_a_query_that_begins_meanwhile_is_retired_too() -> None:
    sinks = {0: RetiredSink("q", racing=2)}
    retire(1, sinks)
    assert sinks[0].query_id == "generation 1"
    assert sinks[0].calls == ["remove"] * 3


def test_the_first_generation_retires_nothing() -> None:
    sinks: dict[int, RetiredSink] = {}
    retire(0, sinks)
    assert sinks == {}


def test_the_number_of_retired_generations_is_bounded() -> None:
    sinks: dict[int, RetiredSink] = {}
    retire(1_000_000, sinks)
    assert len(sinks) == 100
