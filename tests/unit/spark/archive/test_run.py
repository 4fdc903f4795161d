from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import NoReturn, cast

import pytest
from sqlalchemy.exc import OperationalError

from lakelog.spark.archive.engine import Engine, EngineEndedError
from lakelog.spark.archive.run import ArchiveRun
from lakelog.tables.archive.commit import commit_batch
from lakelog.tables.archive.failures import Availability, SyncError
from lakelog.tables.archive.progress import ArchiveJob
from lakelog.tables.archive.publication import Publication
from lakelog.tables.archive.reconcile import Reconciler
from lakelog.tables.archive.refusals import Span
from lakelog.tables.iceberg.address import TableAddress
from unit.tables.archive_table import TOPIC_ID, write_batch

UNREACHABLE = "UnreachableError: connection refused"


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def run(address: TableAddress, lines: list[str]) -> ArchiveRun:
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
    return ArchiveRun(
        cast("Engine", None),
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


def set_away(monkeypatch: pytest.MonkeyPatch, away: bool) -> None:
    monkeypatch.setattr(Availability, "wait", lambda *_: away)


@pytest.mark.parametrize(
    "name", ["DataLossError", "TopicGoneError", "BadRecordError", "ProgressMismatchError"]
)
def test_an_error_that_a_retry_cannot_fix_ends_the_job(run: ArchiveRun, name: str) -> None:
    with pytest.raises(SyncError, match=r"^orders-0 \[0, 5\): gone$"):
        run._failed(f"{name}: orders-0 [0, 5): gone")


def test_a_broker_that_was_away_is_no_failure(
    run: ArchiveRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_away(monkeypatch, True)
    for _ in range(10):
        run._failed("LeaderNotAvailable: of a broker that starts")


def test_other_failures_end_the_job_unless_it_makes_progress(
    run: ArchiveRun, monkeypatch: pytest.MonkeyPatch, address: TableAddress, lines: list[str]
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
    run: ArchiveRun, monkeypatch: pytest.MonkeyPatch
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
    run: ArchiveRun, monkeypatch: pytest.MonkeyPatch, address: TableAddress, lines: list[str]
) -> None:
    """Each task skips the removed part of its own range."""
    set_away(monkeypatch, True)
    gone = (Span(0, 5, 7), Span(1, 0, 3), Span(0, 2, 5))
    commit_batch(address, replace(write_batch(address, 0, 9), skipped=gone))
    commit_batch(address, write_batch(address, 9, 12, 1))
    for _ in range(2):
        run._report()
    commit_batch(address, replace(write_batch(address, 12, 20, 2), skipped=(Span(0, 12, 14),)))
    run._report()

    lost = "the topic lost these offsets before they were archived"
    assert lines == [
        f"orders: skipped orders-0 [2, 7), orders-1 [0, 3): {lost}",
        "12 rows",
        f"orders: skipped orders-0 [12, 14): {lost}",
        "20 rows",
    ]


def test_lost_connections_are_said_once_and_tried_again_while_following(
    run: ArchiveRun, monkeypatch: pytest.MonkeyPatch, lines: list[str]
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
    run: ArchiveRun, lines: list[str], monkeypatch: pytest.MonkeyPatch
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
    run: ArchiveRun, monkeypatch: pytest.MonkeyPatch, lines: list[str], reason: str
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


class EndedEngine:
    """An engine that ends at its start or while its query runs, perhaps after a signal."""

    tasks = 2

    def __init__(self, run: ArchiveRun, *, begins: bool, is_signalled: bool) -> None:
        self._run = run
        self._begins = begins
        self._is_signalled = is_signalled

    def start(self, job: ArchiveJob, every_s: float | None) -> EndedEngine:
        return self if self._begins else self._end()

    def wait(self, timeout_s: float) -> bool:
        return self._end()

    def stop(self) -> None:
        """Nothing runs."""

    def _end(self) -> NoReturn:
        if self._is_signalled:
            self._run.stop.set()
        raise EngineEndedError(SyncError("Java ended"))


@pytest.mark.parametrize("begins", [False, True])
def test_an_engine_that_a_signal_ends_as_well_is_no_failure(
    run: ArchiveRun, monkeypatch: pytest.MonkeyPatch, begins: bool
) -> None:
    run.stop.clear()
    monkeypatch.setattr(ArchiveRun, "_reconcile", lambda _: None)
    run.engine = cast("Engine", EndedEngine(run, begins=begins, is_signalled=True))
    run.watch()


@pytest.mark.parametrize("begins", [False, True])
def test_an_engine_that_ends_by_itself_fails_the_job(
    run: ArchiveRun, monkeypatch: pytest.MonkeyPatch, begins: bool
) -> None:
    run.stop.clear()
    monkeypatch.setattr(ArchiveRun, "_reconcile", lambda _: None)
    run.engine = cast("Engine", EndedEngine(run, begins=begins, is_signalled=False))
    with pytest.raises(SyncError, match=r"^Java ended$"):
        run.watch()
