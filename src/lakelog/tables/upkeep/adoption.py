"""Adopts a table that another program has filled: its rows become the progress of the archive.

The rows must be of the topic, each offset once. The archive continues after the greatest offset of
each partition. Offsets between the rows count as archived: they are gaps, as control records are.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow.compute as pc
from pyiceberg.expressions import NotEqualTo

from lakelog.tables.archive.failures import SyncError
from lakelog.tables.archive.history import record
from lakelog.tables.archive.job import ArchiveJob
from lakelog.tables.archive.progress import Extent, Progress
from lakelog.tables.hybrid.archives import TopicArchive
from lakelog.tables.iceberg.table import load_for_commit
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.upkeep.audit import row_offsets


def adopt_rows(job: ArchiveJob, client: TopicClient, notice: Callable[[str], None]) -> None:
    """Record the rows of the table as the progress of the job's topic.

    Raises `SyncError` if the table already has a progress of the topic, if it has rows of another
    topic or of unknown partitions, if an offset is there twice, or if the log ends before a row.
    """
    table = load_for_commit(job.address)
    name = ".".join(job.identifier)
    archive = TopicArchive(job.topic, job.topic_id, job.address, table, Progress())
    if any(key.startswith("lakelog.sync.") for key in table.properties):
        raise SyncError(
            f"the table {name} has a progress already; --adopt rows is for other tables"
        )
    others = table.scan(row_filter=NotEqualTo("topic", job.topic), limit=1).to_arrow()
    if others.num_rows:
        raise SyncError(
            f"the table {name} has rows of topic {others['topic'][0].as_py()!r}: archive "
            f"{job.topic!r} into a table of another name"
        )
    partitions = client.describe([job.topic])[job.topic].partitions
    keys = [(job.topic, partition) for partition in partitions]
    starts, ends = client.earliest(keys), client.latest(keys)
    extents: dict[int, Extent] = {}
    total = 0
    for key in keys:
        first, end, rows = _extent(archive, key[1])
        total += rows
        if end > ends[key]:
            raise SyncError(
                f"the table {name} has {job.topic}-{key[1]}@{end - 1}, but the log ends at "
                f"{ends[key]}: the rows are of another log"
            )
        extents[key[1]] = Extent(first, end) if rows else Extent(starts[key], starts[key])
    snapshot = table.current_snapshot()
    counted = (
        0 if snapshot is None or snapshot.summary is None else snapshot.summary["total-records"]
    )
    if total != int(counted or 0):
        raise SyncError(f"the table {name} has {counted} rows, but {total} are of this topic")
    with table.transaction() as transaction:
        record(transaction, job.topic_id, Progress(extents, "adopted", 0))
    notice(f"{job.topic}: adopted {total} rows of the table {name}")


def _extent(archive: TopicArchive, partition: int) -> tuple[int, int, int]:
    """Return the first offset, the offset after the last, and the number of rows."""
    first, end, rows = 0, 0, 0
    for offsets in row_offsets(archive, partition):
        is_rising = pc.all(pc.less(offsets[:-1], offsets[1:])).as_py()
        if not is_rising or (rows and offsets[0].as_py() < end):
            raise SyncError(
                f"the table {'.'.join(archive.address.identifier)} has an offset of "
                f"{archive.topic}-{partition} twice"
            )
        first = first if rows else int(offsets[0].as_py())
        end, rows = int(offsets[-1].as_py()) + 1, rows + len(offsets)
    return first, end, rows
