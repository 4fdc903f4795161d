"""Dead letters of records that the log has lost: other records may get their offsets.

A letter is either of a batch that the archive's table has, or of a batch whose rows were never
committed. If the log loses records of the former, their rows leave the table (`reconcile.py`), and
so do their letters. Letters of the latter were never part of the archive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from lakelog.tables.archive.dead_letters import (
    cut_letters,
    find_letters,
    letter_ranges,
    letters_address,
    letters_progress,
)
from lakelog.tables.archive.history import agreed_progress
from lakelog.tables.archive.job import ArchiveJob
from lakelog.tables.archive.progress import Extent, Progress
from lakelog.tables.archive.refusals import RefusedCount
from lakelog.tables.iceberg.table import load_for_commit
from lakelog.tables.topic.divergence import Divergence

LOST_TAG = "lakelog-lost-"
"""The name of a tag that keeps lost records begins so, and ends with the id of its snapshot."""


def refused_before(
    job: ArchiveJob, progress: Progress, back: Mapping[int, Extent]
) -> dict[int, RefusedCount]:
    """Return the refused offsets of a progress whose extents `back` end earlier.

    No table names the skipped ones, so their number stays: it is an upper bound from then on.
    """
    refused = dict(progress.refused)
    letters = find_letters(job.address)
    if letters is None:
        return refused
    for partition in back.keys() & refused.keys():
        ranges = letter_ranges(letters, job.topic, partition)
        kept = sum(end - start for start, end in ranges if start < back[partition].end)
        most = refused[partition].dead_letters
        refused[partition] = refused[partition]._replace(dead_letters=min(kept, most))
    return refused


def letters_ahead(job: ArchiveJob) -> dict[int, Extent]:
    """Return the extents of the dead letters that end after the extents of the archive's table."""
    letters = find_letters(job.address)
    if letters is None:
        return {}
    ends = agreed_progress(job.address.load(), job.topic_id).ends
    known = letters_progress(letters, job.topic_id).extents
    return {p: extent for p, extent in known.items() if extent.end > ends.get(p, 0)}


def cut_lost_letters(
    job: ArchiveJob,
    ahead: Mapping[int, Extent],
    diverged: Iterable[Divergence],
    notice: Callable[[str], None],
) -> None:
    """Remove the letters beyond the table's end and beyond where the log was cut.

    ahead: see `letters_ahead`. diverged: the partitions whose log was cut. A tag keeps
    the snapshot that has the letters. Raises the errors of the catalog.
    """
    ends = agreed_progress(job.address.load(), job.topic_id).ends
    cuts = {}
    for each in diverged:
        at = max(ends.get(each.partition, 0), each.restart or 0)
        cuts[each.partition] = Extent(min(ahead[each.partition].start, at), at, each.found.epoch)
    if not cuts:
        return
    address = letters_address(job.address)
    table = load_for_commit(address)
    snapshot = table.current_snapshot()
    assert snapshot is not None, "a table with a progress has a snapshot"
    tag = f"{LOST_TAG}{snapshot.snapshot_id}"
    # Before the delete, and kept across repetitions of an interrupted run.
    if tag not in table.metadata.refs:
        table.manage_snapshots().create_tag(snapshot.snapshot_id, tag).commit()
    cut_letters(load_for_commit(address), job.topic_id, cuts)
    notice(
        f"{job.topic}: removed dead letters of lost records from {'.'.join(address.identifier)}; "
        f"the tag {tag} keeps the snapshot that has them"
    )
