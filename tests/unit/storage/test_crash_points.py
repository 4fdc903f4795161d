"""A sample of the crash points; `tests/system/test_crash_points.py` has all of them."""

from __future__ import annotations

import logging

import pytest

from crash_points import OPERATIONS, Workload, workloads
from lakelog.storage.checkpoint import LOG_STARTS, CheckpointJob
from lakelog.storage.flush import FlushJob
from lakelog.storage.folder.known_logs import KNOWN_LOGS
from lakelog.storage.producers.snapshots import ProducerSnapshots

SAMPLE = ("each append durable", "truncations", "deleted records", "compactions", "everything")


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Each recovery logs its result."""
    caplog.set_level(logging.CRITICAL, logger="lakelog")


def by_name(name: str) -> Workload:
    (found,) = [workload for workload in workloads() if workload.name == name]
    return found


@pytest.mark.parametrize("name", SAMPLE)
def test_a_start_after_a_crash_at_any_call_keeps_all_promises(name: str) -> None:
    points = by_name(name).run(every=31)
    assert len(points) >= 5
    assert {point.operation for point in points} <= set(OPERATIONS)


def test_a_flush_that_does_not_sync_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    run = FlushJob.run

    def without_segments(job: FlushJob) -> None:
        handles, job.handles = job.handles, []
        run(job)
        job.handles = handles

    monkeypatch.setattr(FlushJob, "run", without_segments)
    with pytest.raises(AssertionError, match="was promised"):
        by_name("each append durable").run(every=3)


def test_a_start_of_the_log_that_is_not_durable_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two files have it, of which one may be damaged."""
    run = CheckpointJob.run

    def forgetful(job: CheckpointJob) -> None:
        for path in [path for path in job._files if path.name in (LOG_STARTS, KNOWN_LOGS)]:
            del job._files[path]
        run(job)

    monkeypatch.setattr(CheckpointJob, "run", forgetful)
    with pytest.raises(AssertionError, match="a start of"):
        by_name("deleted records").run(every=3)


def test_a_snapshot_of_something_else_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    newest = ProducerSnapshots.newest

    def stale(self: ProducerSnapshots, end_offset: int):  # type: ignore[no-untyped-def]
        offset, entries = newest(self, end_offset)
        return offset, dict(list(entries.items())[1:])

    monkeypatch.setattr(ProducerSnapshots, "newest", stale)
    with pytest.raises(AssertionError, match="by the log alone"):
        by_name("everything").run(every=1)
