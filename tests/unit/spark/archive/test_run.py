"""Texts and stack traces as Spark 4.3 writes them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn, cast

import pytest
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import PySparkRuntimeError, StreamingQueryException
from sqlalchemy.exc import OperationalError

from lakelog.spark.archive import run as running
from lakelog.spark.archive.run import Run, reason_of
from lakelog.tables.archive.commit import commit_batch
from lakelog.tables.archive.failures import Availability, SyncError
from lakelog.tables.archive.history import Skipped
from lakelog.tables.archive.job import ArchiveJob
from lakelog.tables.archive.publication import Publication
from lakelog.tables.archive.reconcile import Reconciler
from lakelog.tables.iceberg.address import TableAddress
from unit.tables.archive_table import TOPIC_ID, write_batch

UNREACHABLE = "UnreachableError: connection refused"


def test_old_checkpoints_go_beside_a_run_that_takes_its_own_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two jobs of one topic share the folder, and one may end while the other looks around."""
    for name, age_s in (("old", 2 * running._LEFTOVER_AGE_S), ("young", 0), ("ends", 0)):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, times=(time.time() - age_s,) * 2)
    now_s = time.time()

    def end_the_other() -> float:
        if (tmp_path / "ends").exists():
            (tmp_path / "ends").rmdir()
        return now_s

    monkeypatch.setattr(time, "time", end_the_other)
    monkeypatch.setattr(Path, "glob", lambda self, _: [self / "ends", self / "old", self / "young"])
    running._remove_leftovers(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["young"]


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def run(address: TableAddress, lines: list[str], tmp_path: Path) -> Run:
    """A job with --follow whose waits return at once."""
    job = ArchiveJob(
        bootstrap="b:1",
        topic="orders",
        topic_id=TOPIC_ID,
        catalog=dict(address.catalog),
        identifier=address.identifier,
        location="",
        batch_bytes=1000,
        tasks=2,
        skip_lost=False,
        raw_timestamp_id=0,
        uuid=address.uuid,
        extents={},
    )
    stop = threading.Event()
    stop.set()
    return Run(
        _no_session,
        tmp_path / "checkpoints",
        every_s=1.0,
        reconciler=Reconciler(job, None, lines.append),
        availability=Availability("b:1", "orders", None, lines.append),
        publication=cast("Publication", Unpublished()),
        progress=lambda state: lines.append(f"{state.rows} rows"),
        stop=stop,
    )


class Unpublished:
    def follow(self, ends: Mapping[int, int]) -> None:
        """Nothing to do."""

    def publish(self, ends: Mapping[int, int]) -> None:
        """No broker would get these offsets."""


def _no_session() -> NoReturn:
    raise AssertionError("nothing is run")


def set_away(monkeypatch: pytest.MonkeyPatch, away: bool) -> None:
    monkeypatch.setattr(Availability, "wait", lambda *_: away)


@pytest.mark.parametrize(
    "name", ["DataLossError", "TopicGoneError", "BadRecordError", "ProgressMismatchError"]
)
def test_an_error_that_a_retry_cannot_fix_ends_the_job(run: Run, name: str) -> None:
    with pytest.raises(SyncError, match=r"^orders-0 \[0, 5\): gone$"):
        run._failed(f"{name}: orders-0 [0, 5): gone")


def test_a_broker_that_was_away_is_no_failure(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    set_away(monkeypatch, True)
    for _ in range(10):
        run._failed("LeaderNotAvailable: of a broker that starts")


def test_other_failures_end_the_job_unless_it_makes_progress(
    run: Run, monkeypatch: pytest.MonkeyPatch, address: TableAddress, lines: list[str]
) -> None:
    set_away(monkeypatch, False)
    for _ in range(2):
        run._failed("RuntimeError: perhaps a killed worker")
    commit_batch(address, write_batch(address, 0, 5))
    for _ in range(2):
        run._failed("RuntimeError: perhaps a killed worker")
    assert lines == ["5 rows"]

    with pytest.raises(SyncError, match=r"^RuntimeError: perhaps a killed worker$"):
        run._failed("RuntimeError: perhaps a killed worker")


def test_a_catalog_that_cannot_be_read_is_a_failure_like_others(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(_: TableAddress) -> NoReturn:
        raise OperationalError("SELECT", None, Exception("disk I/O error"))

    set_away(monkeypatch, False)
    monkeypatch.setattr(TableAddress, "load", load)
    for _ in range(2):
        run._failed("OperationalError: disk I/O error")
    with pytest.raises(SyncError, match="disk I/O error"):
        run._failed("OperationalError: disk I/O error")


def test_offsets_skipped_by_a_commit_are_reported_once(
    run: Run, monkeypatch: pytest.MonkeyPatch, address: TableAddress, lines: list[str]
) -> None:
    """Each task skips the removed part of its own range."""
    set_away(monkeypatch, True)
    gone = (Skipped(0, 5, 7), Skipped(1, 0, 3), Skipped(0, 2, 5))
    commit_batch(address, replace(write_batch(address, 0, 9), skipped=gone))
    commit_batch(address, write_batch(address, 9, 12, 1))
    for _ in range(2):
        run._report()
    commit_batch(address, replace(write_batch(address, 12, 20, 2), skipped=(Skipped(0, 12, 14),)))
    run._report()

    lost = "the topic lost these offsets before they were archived"
    assert lines == [
        f"orders: skipped orders-0 [2, 7), orders-1 [0, 3): {lost}",
        "12 rows",
        f"orders: skipped orders-0 [12, 14): {lost}",
        "20 rows",
    ]


def test_lost_connections_are_said_once_and_tried_again_while_following(
    run: Run, monkeypatch: pytest.MonkeyPatch, lines: list[str]
) -> None:
    set_away(monkeypatch, False)
    for _ in range(10):
        run._failed(UNREACHABLE)
    assert lines == [f"orders: {UNREACHABLE}; retrying"]

    run.every_s = None
    for _ in range(2):
        run._failed(UNREACHABLE)
    with pytest.raises(SyncError, match="connection refused"):
        run._failed(UNREACHABLE)


def test_batches_of_too_many_partitions_become_smaller(
    run: Run, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_away(monkeypatch, False)
    run._batch_bytes = 1000
    for _ in range(5):
        run._failed("TooManyPartitionsError: a batch has rows of more than 100 partitions")
    assert run._batch_bytes == 1
    assert lines[0] == (
        "orders: a batch has rows of more than 100 partitions; the next batches have about 250 "
        "bytes. Coarser partitions make fewer files"
    )
    with pytest.raises(SyncError, match="more than 100 partitions"):
        for _ in range(3):
            run._failed("TooManyPartitionsError: a batch has rows of more than 100 partitions")


FULL = "WarehouseFullError: the disk of the warehouse /w is full: free space"


@pytest.mark.parametrize(
    "reason",
    [
        FULL,
        "CatalogLockedError: another process has locked the catalog /w/catalog.db",
        "IOException: No space left on device",
        "IOException: Disk quota exceeded",
    ],
)
def test_a_full_disk_or_a_locked_catalog_is_said_once_and_tried_again_while_following(
    run: Run, monkeypatch: pytest.MonkeyPatch, lines: list[str], reason: str
) -> None:
    set_away(monkeypatch, False)
    for _ in range(5):
        run._failed(reason)
    assert lines == [f"orders: {reason}; retrying"]
    run.every_s = None
    with pytest.raises(
        SyncError,
        match=r"No space left|quota exceeded|^the disk of the warehouse /w is|^another process",
    ):
        run._failed(reason)


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


class EndedByJava:
    """A query whose Java process ends while it is awaited; a signal may have come before."""

    def __init__(self, on_wait: Callable[[], object]) -> None:
        self._on_wait = on_wait

    def awaitTermination(self, timeout_s: float) -> NoReturn:  # noqa: N802 - of PySpark
        self._on_wait()
        raise Py4JNetworkError("Error while sending or receiving")

    def stop(self) -> NoReturn:
        raise ConnectionRefusedError


@pytest.mark.parametrize("is_signalled", [False, True])
@pytest.mark.parametrize("begins", [False, True])
def test_a_signal_that_ends_java_as_well_is_no_failure(
    run: Run, monkeypatch: pytest.MonkeyPatch, is_signalled: bool, begins: bool
) -> None:
    run.stop.clear()

    def signal_comes() -> None:
        if is_signalled:
            run.stop.set()

    def start(_: Run, checkpoint: Path) -> EndedByJava:
        if begins:
            return EndedByJava(signal_comes)
        signal_comes()
        raise Py4JNetworkError("Error while sending or receiving")

    monkeypatch.setattr(Run, "_reconcile", lambda _: None)
    monkeypatch.setattr(Run, "_start", start)
    if is_signalled:
        run.watch()
    else:
        with pytest.raises(SyncError, match="Java process ended unexpectedly"):
            run.watch()


@pytest.mark.parametrize("is_signalled", [False, True])
def test_a_signal_while_java_starts_is_no_failure(
    run: Run, monkeypatch: pytest.MonkeyPatch, is_signalled: bool
) -> None:
    run.stop.clear()

    def start(_: Run, checkpoint: Path) -> NoReturn:
        if is_signalled:
            run.stop.set()
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    monkeypatch.setattr(Run, "_reconcile", lambda _: None)
    monkeypatch.setattr(Run, "_start", start)
    if is_signalled:
        run.watch()
    else:
        with pytest.raises(PySparkRuntimeError):
            run.watch()
