"""Compares the progress in the table's property with that in its current snapshot.

Table properties do not roll back with snapshots. After `rollback_to_snapshot` the property still
claims offsets whose rows are gone, and a job that believed it would leave them out for good. So
each commit of the archive writes its progress into the snapshot's summary too, and both must be
equal before anything is appended. Snapshots of other writers may follow ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from lakelog.tables.archive.progress import Progress, property_name, read_progress

_SHOWN_MAX = 8
_VERSION_1 = ("lakelog.query-id", "lakelog.batch")
"""What version 1 of the progress left in summaries: enough to compare, not to go on from."""


class ProgressMismatchError(Exception):
    """The table's progress and its current snapshot disagree."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """The progress in the newest snapshot of the archive: the current one or an ancestor.

    `progress` is `None` for a snapshot of version 1, and both are when no such snapshot is kept: a
    history that expiry cut looks like one that begins there. `query` is (query id, batch).
    """

    progress: Progress | None
    query: tuple[str, int] | None


def agreed_progress(table: Table, topic_id: str) -> Progress:
    """Return the progress. Raises `ProgressMismatchError` and `ProgressFormatError`."""
    claimed = read_progress(table.properties, topic_id)
    recorded = recorded_progress(table, topic_id)
    if recorded.progress == claimed:
        return claimed
    if recorded.progress is None and recorded.query == _query(claimed):
        return claimed
    raise ProgressMismatchError(_difference(table, claimed, recorded))


def recorded_progress(table: Table, topic_id: str) -> Recorded:
    """Return the progress in the kept snapshots. Raises `ProgressFormatError`."""
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
    """Of a table that never held the archive it is that of no snapshot."""
    return (claimed.query_id, claimed.batch) if claimed.extents else None


def ancestors(table: Table) -> Iterator[Snapshot]:
    """The current snapshot and those before it, as far as they are kept."""
    snapshot = table.current_snapshot()
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.metadata.snapshot_by_id(parent)


def _difference(table: Table, claimed: Progress, recorded: Recorded) -> str:
    name = ".".join(table.name())
    said = "whose kept ancestors do not say it"
    if recorded.progress is not None:
        said = f"according to which {_ends(recorded.progress)} are archived"
    return (
        f"the table {name} was rolled back or changed by another program: its property says that "
        f"{_ends(claimed)} are archived, and its current snapshot is "
        f"{table.metadata.current_snapshot_id}, {said}. --progress-from snapshot archives again "
        "what the snapshot lacks; --progress-from property continues behind it and leaves it out"
    )


def _ends(progress: Progress) -> str:
    """The first partitions suffice to see what happened."""
    shown = [f"{partition}: {end}" for partition, end in progress.ends.items()]
    more = ", ..." if len(shown) > _SHOWN_MAX else ""
    return "offsets before {" + ", ".join(shown[:_SHOWN_MAX]) + more + "}"
