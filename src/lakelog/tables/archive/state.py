"""The archived table after a commit, as callers of a job see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakelog.tables.archive.failures import SyncError
from lakelog.tables.archive.job import ArchiveJob
from lakelog.tables.archive.progress import ProgressFormatError, read_progress
from lakelog.tables.iceberg.address import TableReplacedError


@dataclass(frozen=True, slots=True)
class SyncProgress:
    """The table after a commit. `ends` maps partitions to the first offset not archived."""

    rows: int
    ends: Mapping[int, int]
    snapshot_id: int | None


def state_of(job: ArchiveJob) -> SyncProgress:
    """Return the table's present state.

    Raises `SyncError` if the table was replaced or its progress cannot be read.
    """
    try:
        table = job.address.load()
        ends = read_progress(table.properties, job.topic_id).ends
    except (TableReplacedError, ProgressFormatError) as error:
        raise SyncError(str(error)) from error
    snapshot = table.current_snapshot()
    rows = 0 if snapshot is None or snapshot.summary is None else snapshot.summary["total-records"]
    return SyncProgress(int(rows or 0), ends, snapshot and snapshot.snapshot_id)
