from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import PySparkRuntimeError, StreamingQueryException

from lakelog.spark.archive import engine
from lakelog.spark.archive.engine import (
    EngineEndedError,
    QueryFailedError,
    SparkEngine,
    SparkQuery,
    reason_of,
)
from lakelog.tables.archive.failures import SyncError


def test_old_checkpoints_go_beside_a_run_that_takes_its_own_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two jobs of one topic share the folder, and one may end while the other looks around."""
    for name, age_s in (("old", 2 * engine._LEFTOVER_AGE_S), ("young", 0), ("ends", 0)):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, times=(time.time() - age_s,) * 2)
    now_s = time.time()

    def end_the_other() -> float:
        if (tmp_path / "ends").exists():
            (tmp_path / "ends").rmdir()
        return now_s

    monkeypatch.setattr(time, "time", end_the_other)
    monkeypatch.setattr(Path, "glob", lambda self, _: [self / "ends", self / "old", self / "young"])
    SparkEngine(_no_session, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["young"]


def _no_session() -> NoReturn:
    raise AssertionError("nothing is run")


def test_a_session_that_was_never_opened_is_not_stopped(tmp_path: Path) -> None:
    SparkEngine(_no_session, tmp_path).close()


def test_a_session_that_does_not_open_keeps_the_error_of_spark(tmp_path: Path) -> None:
    gone = PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    def open_session() -> NoReturn:
        raise gone

    with pytest.raises(EngineEndedError) as ended:
        _ = SparkEngine(open_session, tmp_path).tasks
    assert ended.value.failure is gone


class Ended:
    """A query of PySpark that ends with an error, and whose Java has gone."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def awaitTermination(self, timeout: float) -> bool:  # noqa: N802
        raise self._error

    def stop(self) -> None:
        raise Py4JNetworkError


def test_a_query_that_fails_states_its_reason(tmp_path: Path) -> None:
    query = SparkQuery(Ended(failure("DataLossError: gone")), tmp_path)
    with pytest.raises(QueryFailedError, match=r"^DataLossError: gone$"):
        query.wait(0)


@pytest.mark.parametrize("error", [Py4JNetworkError(), ConnectionRefusedError()])
def test_a_query_whose_java_has_gone_leaves_no_checkpoint(tmp_path: Path, error: Exception) -> None:
    (tmp_path / "checkpoint").mkdir()
    query = SparkQuery(Ended(error), tmp_path / "checkpoint")
    with pytest.raises(EngineEndedError, match="Spark's Java process ended") as ended:
        query.wait(0)
    assert isinstance(ended.value.failure, SyncError)
    query.stop()
    assert not query.checkpoint.exists()


QUERY = "[STREAM_FAILED] Query [id = 5e24, runId = c4f0] terminated with exception: "
REST = " SQLSTATE: XXKST\n=== Streaming Query ===\nThread State: RUNNABLE\n"
CRASHED = "Python worker exited unexpectedly (crashed)."
PLANNER = "org.apache.spark.sql.execution.python.streaming.PythonStreamingSourceRunner"
COMMITTER = "org.apache.spark.sql.execution.datasources.v2.python.PythonStreamingSinkCommitRunner"


def failure(message: str, trace: str | None = None) -> StreamingQueryException:
    error = StreamingQueryException(QUERY + message + REST)
    if trace is not None:
        error._cause = SimpleNamespace(_stackTrace=trace)
    return error


@pytest.mark.parametrize(
    "closed", ["java.io.EOFException", "java.net.SocketException: Broken pipe"]
)
def test_the_process_that_plans_is_named_when_it_dies_without_a_word(closed: str) -> None:
    text = closed.partition(": ")[2]
    error = failure(text, f"{closed}\n\tat {PLANNER}.latestOffset(PythonStreamingSourceRunner:208)")
    assert reason_of(error).startswith("the Python process that plans batches ended unexpectedly (")


def test_the_process_that_commits_is_named_when_it_dies() -> None:
    trace = (
        f"org.apache.spark.SparkException: {CRASHED}\n\tat PythonPlannerRunner.runInPython(:165)\n"
        f"Caused by: java.io.EOFException\n\tat {COMMITTER}.receiveFromPython(:78)"
    )
    assert reason_of(failure(CRASHED, trace)) == (
        "the Python process that commits batches ended unexpectedly (EOFException): it was killed, "
        "perhaps because memory ran out, or it crashed"
    )


def test_a_task_is_named_with_its_executor() -> None:
    task = "Lost task 0.0 in stage 1.0 (TID 1) (10.0.0.2 executor 1): "
    lost = f"{task}ExecutorLostFailure Reason: Command exited with code 137"
    aborted = "Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, "
    assert reason_of(failure(f"{aborted}most recent failure: {lost}")) == lost


def test_an_error_of_python_is_the_reason_wherever_it_was_raised() -> None:
    trace = f"java.io.EOFException\n\tat {PLANNER}.latestOffset(PythonStreamingSourceRunner:208)"
    error = failure(
        f"Traceback:\nlakelog.tables.DataLossError: orders-0: gone\n\tat {PLANNER}", trace
    )
    assert reason_of(error) == "DataLossError: orders-0: gone"


@pytest.mark.parametrize(
    ("trace", "reason"),
    [
        ("java.lang.NullPointerException\n\tat java.Foo", "NullPointerException"),
        (None, "an error without a message"),
    ],
)
def test_an_error_without_a_message_has_its_class(trace: str | None, reason: str) -> None:
    assert reason_of(failure("", trace)) == f"Spark's query failed with {reason}"


def test_another_error_of_java_has_its_message_alone() -> None:
    full = "No space left on device"
    assert reason_of(failure(full, f"java.io.IOException: {full}\n\tat java.Foo")) == full
    assert reason_of(StreamingQueryException("the query is gone\nmore")) == "the query is gone"
