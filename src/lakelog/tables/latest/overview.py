"""The size of the table of newest records, and how far it is behind the archive."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.table import Table

from lakelog.tables.iceberg.buckets import buckets_of
from lakelog.tables.joined.archives import TopicArchive
from lakelog.tables.latest.backlog import backlog
from lakelog.tables.latest.table import agreed


@dataclass(frozen=True, slots=True)
class LatestOverview:
    """One version of the table. lag: archived offsets that it does not have. size: in bytes.

    null_keys: archived records without a key, which are in no row.
    """

    rows: int
    files: int
    size: int
    buckets: int
    lag: int
    null_keys: int


def latest_overview(archive: TopicArchive, table: Table) -> LatestOverview:
    """Return the numbers of the table. Raises `LatestTableError` if it was rolled back."""
    progress = agreed(table, archive.topic_id)
    files = [task.file for task in table.scan().plan_files()]
    return LatestOverview(
        rows=sum(file.record_count for file in files),
        files=len(files),
        size=sum(file.file_size_in_bytes for file in files),
        buckets=buckets_of(table) or 0,
        lag=sum(
            each.end - each.start for each in backlog(archive, progress.ends, archive.progress.ends)
        ),
        null_keys=sum(progress.null_keys.values()),
    )
