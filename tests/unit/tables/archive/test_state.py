"""The state of a table that a job reports."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakelog.tables.archive.commit import commit_batch
from lakelog.tables.archive.failures import SyncError
from lakelog.tables.archive.job import ArchiveJob
from lakelog.tables.archive.progress import property_name
from lakelog.tables.archive.state import SyncProgress, state_of
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.catalog import open_catalog
from unit.tables.archive_table import TOPIC_ID, write_batch


@pytest.fixture
def job(address: TableAddress) -> ArchiveJob:
    return ArchiveJob(
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


def test_a_new_table_has_no_rows_no_ends_and_no_snapshot(job: ArchiveJob) -> None:
    assert state_of(job) == SyncProgress(0, {}, None)


def test_a_commit_changes_rows_ends_and_snapshot(job: ArchiveJob) -> None:
    commit_batch(job.address, write_batch(job.address, 0, 5))
    commit_batch(job.address, write_batch(job.address, 5, 7, 1))
    snapshot = job.address.load().current_snapshot()
    assert snapshot is not None
    assert state_of(job) == SyncProgress(7, {0: 7}, snapshot.snapshot_id)


def test_a_job_does_not_report_the_ends_of_another_topic(job: ArchiveJob) -> None:
    commit_batch(job.address, write_batch(job.address, 0, 5))
    assert state_of(replace(job, topic_id="another")).ends == {}


def test_a_dropped_table_is_an_error_of_the_job(job: ArchiveJob) -> None:
    open_catalog(job.catalog).drop_table(job.identifier)
    with pytest.raises(SyncError, match=r"lakelog.orders was dropped while the job was running"):
        state_of(job)


def test_progress_that_cannot_be_read_is_an_error_of_the_job(job: ArchiveJob) -> None:
    with job.address.load().transaction() as transaction:
        transaction.set_properties({property_name(TOPIC_ID): "{"})
    with pytest.raises(SyncError, match=r"progress cannot be read .*Restore the property"):
        state_of(job)
