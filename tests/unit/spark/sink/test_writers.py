from __future__ import annotations

import pickle
from typing import Any, ClassVar

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from lakelog.base.errors import ErrorCode
from lakelog.client.errors import OutcomeUnknownError, UnreachableError
from lakelog.client.sink import (
    BatchCommittedError,
    QueryRun,
    Receipt,
    RecordCount,
    RunFencedError,
    SinkControl,
)
from lakelog.spark.sink import writers as sets
from lakelog.spark.sink.attempts import Attempt
from lakelog.spark.sink.control import Content
from lakelog.spark.sink.options import (
    BatchOrderError,
    FencedError,
    SinkError,
    SinkOptions,
    UnknownOutcomeError,
)
from lakelog.spark.sink.writers import abort_set, batch_writer, commit_set, stream_writer
from lakelog.tables.topic.errors import OptionError

OPTIONS = {"kafka.bootstrap.servers": "localhost:1", "topic": "t"}
SCHEMA = StructType([StructField("value", StringType())])


def test_a_writer_is_made_without_a_broker_and_can_be_sent_to_tasks() -> None:
    assert pickle.loads(pickle.dumps(stream_writer(OPTIONS, SCHEMA))) is not None
    assert pickle.loads(pickle.dumps(batch_writer(OPTIONS, SCHEMA, overwrite=False))) is not None


def test_a_topic_is_never_overwritten() -> None:
    with pytest.raises(OptionError, match=r'use \.mode\("append"\)'):
        batch_writer(OPTIONS, SCHEMA, overwrite=True)


SINK_OPTIONS = SinkOptions(bootstrap="h:1")
RUN = QueryRun("lk-sink-s", "q", "r", 9, 4, 7)
UNKNOWN = OutcomeUnknownError(ErrorCode.REQUEST_TIMED_OUT, "batch 7 may or may not be committed")


def attempt(partition: int, records: int = 3, run: QueryRun = RUN) -> Attempt:
    written = (RecordCount("t", partition, records),) if records else ()
    receipt = Receipt(run.child_id(7, partition, 1), 20 + partition, 0, written)
    return Attempt(run, receipt, Content(records, 10 * records))


class FakeSink:
    """Answers each call with the next of `answers`, an error or `None`."""

    answers: ClassVar[list[Exception | None]] = []
    calls: ClassVar[list[tuple[str, int, list[str]]]] = []

    content: ClassVar[bytes] = b""
    status: ClassVar[SinkControl | None] = None

    opened: ClassVar[int] = 0
    closed: ClassVar[int] = 0

    def __init__(self, bootstrap: str, sink_id: str, **settings: Any) -> None:
        assert bootstrap == "h:1"
        self.sink_id = sink_id
        FakeSink.opened += 1

    def close(self) -> None:
        FakeSink.closed += 1

    def __enter__(self) -> FakeSink:
        return self

    def __exit__(self, *error: object) -> None: ...

    def read(self) -> SinkControl | None:
        return FakeSink.status

    def commit(self, run: QueryRun, batch: int, receipts: list[Receipt], content: bytes) -> None:
        FakeSink.content = content
        self._answer(("commit", batch, [each.transactional_id for each in receipts]))

    def abort(self, run: QueryRun, batch: int) -> None:
        self._answer(("abort", batch, []))

    def _answer(self, call: tuple[str, int, list[str]]) -> None:
        self.calls.append(call)
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            raise answer


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakeSink]:
    FakeSink.answers, FakeSink.calls, FakeSink.status = [], [], None
    FakeSink.opened = FakeSink.closed = 0
    monkeypatch.setattr(sets, "Sink", FakeSink)
    monkeypatch.setattr(sets, "_kept", {})
    return FakeSink


def test_all_tasks_with_records_are_committed_as_one_set() -> None:
    commit_set(SINK_OPTIONS, [attempt(0), attempt(1), attempt(2, records=0), None], 7)
    assert FakeSink.calls == [("commit", 7, ["lk-sink-s/7/0/1", "lk-sink-s/7/1/1"])]
    assert FakeSink.content == Content(6, 60).to_bytes()


def test_an_empty_batch_is_committed() -> None:
    commit_set(SINK_OPTIONS, [attempt(0, records=0)], 7)
    assert FakeSink.calls == [("commit", 7, [])]


def test_a_batch_without_a_task_is_an_error_and_not_forgotten() -> None:
    with pytest.raises(SinkError, match="batch 7, of which no task ran"):
        commit_set(SINK_OPTIONS, [None], 7)
    assert FakeSink.calls == []


def test_the_next_commit_uses_the_same_connection() -> None:
    for batch in (7, 8):
        commit_set(SINK_OPTIONS, [attempt(0)], batch)
    assert (FakeSink.opened, FakeSink.closed) == (1, 0)
    commit_set(SINK_OPTIONS, [attempt(0, run=RUN._replace(sink_id="lk-sink-other"))], 7)
    assert (FakeSink.opened, FakeSink.closed) == (2, 1)


def test_a_failed_commit_closes_its_connection() -> None:
    FakeSink.answers = [RunFencedError(ErrorCode.INVALID_TXN_STATE, "fenced")]
    with pytest.raises(FencedError):
        commit_set(SINK_OPTIONS, [attempt(0)], 7)
    commit_set(SINK_OPTIONS, [attempt(0)], 7)
    assert (FakeSink.opened, FakeSink.closed) == (2, 1)


def test_a_batch_that_a_task_found_committed_is_left_alone() -> None:
    skipped = [attempt(0), Attempt(RUN, None, Content(2, 1))]
    commit_set(SINK_OPTIONS, skipped, 7)
    abort_set(SINK_OPTIONS, skipped, 7)
    assert FakeSink.calls == []


def status(next_batch: int, content: bytes) -> SinkControl:
    return SinkControl("q", "r", next_batch, (), content)


SKIPPED = [Attempt(RUN, None, Content(3, 30)), Attempt(RUN, None, Content(2, 20))]


@pytest.mark.parametrize(
    "found", [status(8, Content(5, 50).to_bytes()), status(8, b""), status(9, b"another"), None]
)
def test_a_committed_batch_of_the_same_rows_is_skipped(found: SinkControl | None) -> None:
    FakeSink.status = found
    commit_set(SINK_OPTIONS, SKIPPED, 7)


@pytest.mark.parametrize("content", [Content(4, 50), Content(5, 51)])
def test_a_committed_batch_of_other_rows_stops_the_query(content: Content) -> None:
    FakeSink.status = status(8, content.to_bytes())
    with pytest.raises(BatchOrderError, match=r"batch 7 of sink .* 5 rows"):
        commit_set(SINK_OPTIONS, SKIPPED, 7)


def test_a_commit_without_an_answer_is_repeated_with_the_same_set() -> None:
    FakeSink.answers = [UNKNOWN, UNKNOWN, None]
    commit_set(SINK_OPTIONS, [attempt(0)], 7)
    assert FakeSink.calls == [("commit", 7, ["lk-sink-s/7/0/1"])] * 3


def test_an_unknown_outcome_is_never_aborted() -> None:
    FakeSink.answers = [UNKNOWN]
    hasty = SinkOptions(bootstrap="h:1", transaction_timeout_ms=0)
    with pytest.raises(UnknownOutcomeError, match="start the query again"):
        commit_set(hasty, [attempt(0)], 7)
    assert [call for call, *_ in FakeSink.calls] == ["commit"]


def test_tasks_of_two_runs_are_not_committed_together() -> None:
    newer = RUN._replace(run_id="r2", producer_epoch=5)
    with pytest.raises(FencedError, match="another run"):
        commit_set(SINK_OPTIONS, [attempt(0), attempt(1, run=newer)], 7)
    assert FakeSink.calls == []


@pytest.mark.parametrize(
    "answer",
    [
        None,
        BatchCommittedError(ErrorCode.INVALID_TXN_STATE, "committed"),
        RunFencedError(ErrorCode.INVALID_TXN_STATE, "fenced"),
        UnreachableError("down"),
        TimeoutError("late"),
    ],
)
def test_an_abort_asks_the_coordinator_and_accepts_its_answer(answer: Exception | None) -> None:
    FakeSink.answers = [answer]
    abort_set(SINK_OPTIONS, [None, attempt(0)], 7)
    assert FakeSink.calls == [("abort", 7, [])]


def test_an_abort_without_a_finished_task_does_nothing() -> None:
    abort_set(SINK_OPTIONS, [None, None], 7)
    assert FakeSink.calls == []
