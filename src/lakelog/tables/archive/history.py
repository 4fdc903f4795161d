"""Progress in the history of a table: compared with its snapshots, and recorded by each commit.

Table properties do not roll back with snapshots. After `rollback_to_snapshot` the property still
claims offsets whose rows are gone; a job that used it would never archive them again. Each commit
of the archive therefore writes its progress into the snapshot's summary too, and both must be
equal before a batch is appended. Snapshots of other writers may follow the archive's.

A commit also records the offsets that its batch left out: the topic lost them before, or they
cannot be rows. Tasks discover them while a batch runs, and only a commit decides the outcome of a
batch. The summary of the snapshot has them as `{"<partition>": [[start, end], ...]}`: lost offsets
under one key, and the first offsets that cannot be rows (`refusals.py`) under another.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import dropwhile, takewhile

from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Snapshot

from lakelog.tables.archive.progress import Extent, Progress, property_name, read_progress
from lakelog.tables.archive.refusals import Span

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


NAME = "lakelog.skipped"
"""The key in a snapshot's summary, for offsets that the topic lost."""
REFUSED = "lakelog.refused"
"""The key for offsets that cannot be rows."""


def merge(pieces: Iterable[Span]) -> list[Span]:
    """Return the pieces in order, with adjacent ones joined."""
    merged: list[Span] = []
    for piece in sorted(pieces):
        last = merged[-1] if merged else None
        if last is not None and (last.partition, last.end) == (piece.partition, piece.start):
            merged[-1] = Span(last.partition, last.start, piece.end)
        else:
            merged.append(piece)
    return merged


def before_extents(progress: Progress, extents: Mapping[int, Extent]) -> list[Span]:
    """Return the removed first offsets of partitions that were added after the first commit."""
    if not progress.extents:
        return []
    added = {p: extent for p, extent in extents.items() if p not in progress.extents}
    return [Span(p, 0, extent.start) for p, extent in added.items() if extent.start > 0]


def summary_entry(pieces: Iterable[Span], name: str = NAME) -> dict[str, str]:
    """Return the entry of a snapshot's summary; it is empty if no offset was skipped."""
    entries: dict[str, list[tuple[int, int]]] = {}
    for partition, start, end in merge(pieces):
        entries.setdefault(str(partition), []).append((start, end))
    return {name: json.dumps(entries)} if entries else {}


def skipped_between(
    table: Table, before: int | None, newest: int | None, name: str = NAME
) -> list[Span]:
    """Return the offsets skipped by the snapshots after `before` up to and including `newest`.

    name: the key in their summaries. before, newest: snapshot ids; `None` stands for a table
    without snapshots. The chain ends where snapshots have expired, so their skips may be missing.
    """
    skipped: list[Span] = []
    later = dropwhile(lambda snapshot: snapshot.snapshot_id != newest, ancestors(table))
    for snapshot in takewhile(lambda snapshot: snapshot.snapshot_id != before, later):
        summary = {} if snapshot.summary is None else snapshot.summary.additional_properties
        entries = json.loads(summary.get(name, "{}"))
        skipped += [Span(int(p), *piece) for p, pieces in entries.items() for piece in pieces]
    return merge(skipped)


def record(
    transaction: Transaction,
    topic_id: str,
    progress: Progress,
    paths: Iterable[str] = (),
    skipped: Iterable[Span] = (),
    refused: Iterable[Span] = (),
) -> None:
    """Add files and progress to a transaction, so that property and summary change together.

    The summary rolls back with the snapshot, the property does not; see `history`.
    """
    entry = {property_name(topic_id): progress.to_text()}
    summary = {**entry, **summary_entry(skipped)}
    summary |= summary_entry(refused, REFUSED)
    # The check for duplicates reads all manifests. Progress excludes them: each range is appended
    # once.
    transaction.add_files(list(paths), snapshot_properties=summary, check_duplicate_files=False)
    transaction.set_properties(entry)
