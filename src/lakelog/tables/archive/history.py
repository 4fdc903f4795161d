"""Compares the progress in the table's property with the progress in its current snapshot.

Table properties do not roll back with snapshots. After `rollback_to_snapshot` the property still
claims offsets whose rows are gone; a job that used it would never archive them again. Each commit
of the archive therefore writes its progress into the snapshot's summary too, and both must be
equal before a batch is appended. Snapshots of other writers may follow the archive's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from lakelog.tables.archive.progress import Progress, property_name, read_progress

_SHOWN_MAX = 8
_VERSION_1 = ("lakelog.query-id", "lakelog.batch")
"""Summary entries of version 1: enough to compare two states, not enough to continue from one."""


class ProgressMismatchError(Exception):
    """The table's progress and its current snapshot disagree."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """The progress in the newest snapshot that the archive wrote.

    progress: `None` for a snapshot of version 1. query: (query id, batch). Both are `None` if no
    snapshot of the archive is kept, because none was written or all have expired.
    """

    progress: Progress | None
    query: tuple[str, int] | None


def agreed_progress(table: Table, topic_id: str) -> Progress:
    """Return the table's progress of a topic.

    Raises `ProgressMismatchError` if property and snapshot disagree, and `ProgressFormatError`.
    """
    claimed = read_progress(table.properties, topic_id)
    recorded = recorded_progress(table, topic_id)
    if recorded.progress == claimed:
        return claimed
    if recorded.progress is None and recorded.query == _query(claimed):
        return claimed
    raise ProgressMismatchError(_difference(table, claimed, recorded))


def recorded_progress(table: Table, topic_id: str) -> Recorded:
    """Return the progress in the newest snapshot that has one. Raises `ProgressFormatError`."""
    for snapshot in ancestors(table):
        summary = {} if snapshot.summary is None else snapshot.summary.additional_properties
        if property_name(topic_id) in summary:
            progress = read_progress(summary, topic_id)
            return Recorded(progress, (progress.query_id, progress.batch))
        if all(name in summary for name in _VERSION_1):
            query_id, batch = (summary[name] for name in _VERSION_1)
            return Recorded(None, (query_id, int(batch)))
    return Recorded(None, None)


def _query(claimed: Progress) -> tuple[str, int] | None:
    """Return (query id, batch), or `None` for a table to which the archive never committed."""
    return (claimed.query_id, claimed.batch) if claimed.extents else None


def ancestors(table: Table) -> Iterator[Snapshot]:
    """Yield the current snapshot and its ancestors, newest first, as far as they are kept.

    The chain ends where snapshots have expired (Iceberg spec, "Snapshots").
    """
    snapshot = table.current_snapshot()
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.metadata.snapshot_by_id(parent)


def _difference(table: Table, claimed: Progress, recorded: Recorded) -> str:
    name = ".".join(table.name())
    recorded_ends = "without a record of the progress in it or its kept ancestors"
    if recorded.progress is not None:
        recorded_ends = f"which records that {_ends(recorded.progress)} are archived"
    return (
        f"the table {name} was rolled back or changed by another program: its property claims that "
        f"{_ends(claimed)} are archived, and its current snapshot is "
        f"{table.metadata.current_snapshot_id}, {recorded_ends}. --adopt snapshot archives "
        "the missing offsets again; --adopt property continues after them and leaves them "
        "out"
    )


def _ends(progress: Progress) -> str:
    """Return the ends of the first partitions as text."""
    shown = [f"{partition}: {end}" for partition, end in progress.ends.items()]
    more = ", ..." if len(shown) > _SHOWN_MAX else ""
    return "offsets before {" + ", ".join(shown[:_SHOWN_MAX]) + more + "}"
