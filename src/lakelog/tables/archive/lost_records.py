"""Removes rows and dead letters of records whose offsets other records may get.

If the log loses records, their rows leave the table: their files are exchanged for others.
PyIceberg's delete rewrites these files too, and changes rows that stay: it reads a null list of
structs (the headers, or a list in `data`) as an empty list. Here the files are filtered as Parquet
has them, so every other row keeps all its values, also in columns of other programs.

A dead letter is either of a batch that the archive's table has, or of a batch whose rows were never
committed. The former leave their table with the rows (`reconcile.py`). The latter were never part
of the archive: a job committed the dead letters, and ended before it committed the rows. The next
job reads the records again. It must refuse them again, or they would be in both tables.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.expressions import And, BooleanExpression, EqualTo, GreaterThanOrEqual, LessThan, Or
from pyiceberg.io.pyarrow import parquet_files_to_data_files
from pyiceberg.table import FileScanTask, Table

from lakelog.tables.archive.dead_letters import (
    cut_dead_letters,
    dead_letter_ranges,
    dead_letters_of,
    dead_letters_progress,
    find_dead_letters,
)
from lakelog.tables.archive.failures import SyncError
from lakelog.tables.archive.files import RowFiles
from lakelog.tables.archive.history import agreed_progress
from lakelog.tables.archive.progress import ArchiveJob, Extent, Progress
from lakelog.tables.archive.refusals import BAD_TIMESTAMP, OnBadRecord, RefusedCount, Span
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.columns import names_in
from lakelog.tables.iceberg.commits import exchange, note_replaced, removing_new_files
from lakelog.tables.iceberg.data_file import are_there, deleted_rows, open_input
from lakelog.tables.iceberg.stored_files import remove_unreferenced
from lakelog.tables.iceberg.table import load_for_commit, terms_of
from lakelog.tables.topic.offsets import Divergence

_IDS = {"topic": 1, "partition": 2, "offset": 3}
"""The ids of the columns that identify a lost row; see `iceberg/columns.py`."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """The new files of one data file, and the number of rows that they lack."""

    task: FileScanTask
    paths: tuple[str, ...]
    removed: int


def remove_rows(
    address: TableAddress,
    table: Table,
    topic: str,
    ranges: Sequence[Span],
    entry: Callable[[Table], Mapping[str, str] | None],
) -> int | None:
    """Remove the rows of the ranges in one commit; return their number.

    table: as loaded before. entry: see `exchange`. Returns `None` if the table has changed so that
    nothing was removed. Raises `UnknownOutcomeError`, `OSError`, `ValueError` for a partition spec
    that an archive does not support, and the errors of `entry` and of the catalog.
    """
    made: list[str] = []
    with removing_new_files(address, made):
        kept = [
            _kept(address, table, task, topic, ranges, made)
            for task in table.scan(row_filter=_any_of(topic, ranges)).plan_files()
        ]
        changed = [rewrite for rewrite in kept if rewrite.removed]
        paths = [path for rewrite in changed for path in rewrite.paths]
        if changed:
            old = [rewrite.task.file.file_path for rewrite in changed]
            note_replaced(table, address.catalog, old)
        is_done = exchange(
            address,
            [rewrite.task for rewrite in changed],
            lambda table: parquet_files_to_data_files(table.io, table.metadata, iter(paths)),
            entry,
        )
    remove_unreferenced(address.load(), made)
    return sum(rewrite.removed for rewrite in changed) if is_done else None


def _kept(
    address: TableAddress,
    table: Table,
    task: FileScanTask,
    topic: str,
    ranges: Sequence[Span],
    made: list[str],
) -> _Kept:
    """Write the rows of a file that stay. made: gets the path of each new file."""
    removed = 0
    with (
        open_input(task.file.file_path, address.catalog) as source,
        pq.ParquetFile(source) as parquet,
    ):
        names = names_in(parquet.schema_arrow, _IDS)
        path = f"{table.location()}/data/kept-{uuid.uuid4().hex}.parquet"
        files = RowFiles(path, parquet.schema_arrow, address.catalog, terms_of(table))
        paths_of_deletes = [file.file_path for file in task.delete_files]
        deleted = deleted_rows(task.file.file_path, paths_of_deletes, address.catalog)
        position = 0
        try:
            for number in range(parquet.num_row_groups):
                for batch in parquet.iter_batches(row_groups=[number]):
                    lost = _lost(batch, names, topic, ranges)
                    stays = pc.invert(lost)
                    if deleted is not None:
                        there = are_there(deleted, position, batch.num_rows)
                        lost, stays = pc.and_(lost, there), pc.and_(stays, there)
                    removed += pc.sum(lost).as_py() or 0
                    position += batch.num_rows
                    kept = batch.filter(stays)
                    if kept.num_rows:
                        files.add(kept)
                files.end_range()
        except BaseException:
            files.remove()
            raise
        paths = files.close()
    made += paths
    return _Kept(task, paths, removed)


def _lost(
    batch: pa.RecordBatch, names: Mapping[str, str], topic: str, ranges: Sequence[Span]
) -> pa.Array:
    """Return for each row whether it is in one of the ranges."""
    partitions = batch.column(names["partition"])
    offsets = batch.column(names["offset"])
    lost = pa.repeat(pa.scalar(False), batch.num_rows)
    for piece in ranges:
        after, before = pc.greater_equal(offsets, piece.start), pc.less(offsets, piece.end)
        inside = pc.and_(pc.equal(partitions, piece.partition), pc.and_(after, before))
        lost = pc.or_(lost, inside)
    return pc.and_(lost, pc.equal(batch.column(names["topic"]), topic))


def _any_of(topic: str, ranges: Sequence[Span]) -> BooleanExpression:
    """Return the filter for files that may have rows of the ranges."""
    terms: list[BooleanExpression] = [
        And(
            EqualTo("topic", topic),
            EqualTo("partition", piece.partition),
            GreaterThanOrEqual("offset", piece.start),
            LessThan("offset", piece.end),
        )
        for piece in ranges
    ]
    return terms[0] if len(terms) == 1 else Or(*terms)


LOST_TAG = "lakelog-lost-"
"""The name of a tag that keeps lost records begins so, and ends with the id of its snapshot."""


def tagged(table: Table) -> str:
    """Tag the current snapshot, whose rows may be the last copy of lost records; return the tag."""
    snapshot = table.current_snapshot()
    assert snapshot is not None, "a table with a progress has a snapshot"
    tag = f"{LOST_TAG}{snapshot.snapshot_id}"
    # Before the delete, and kept across repetitions of an interrupted run.
    if tag not in table.metadata.refs:
        table.manage_snapshots().create_tag(snapshot.snapshot_id, tag).commit()
    return tag


def refused_before(
    job: ArchiveJob, progress: Progress, back: Mapping[int, Extent]
) -> dict[int, RefusedCount]:
    """Return the refused offsets of a progress whose extents `back` end earlier.

    No table names the skipped ones, so their number stays: it is an upper bound from then on.
    """
    refused = dict(progress.refused)
    dead_letters = find_dead_letters(job.address)
    if dead_letters is None:
        return refused
    for partition in back.keys() & refused.keys():
        ranges = dead_letter_ranges(dead_letters, job.topic, partition)
        kept = sum(end - start for start, end in ranges if start < back[partition].end)
        most = refused[partition].dead_letters
        refused[partition] = refused[partition]._replace(dead_letters=min(kept, most))
    return refused


def dead_letters_ahead(job: ArchiveJob) -> dict[int, Extent]:
    """Return the extents of the dead letters that end after the extents of the archive's table."""
    dead_letters = find_dead_letters(job.address)
    if dead_letters is None:
        return {}
    ends = agreed_progress(job.address.load(), job.topic_id).ends
    extents = dead_letters_progress(dead_letters, job.topic_id).extents
    return {p: extent for p, extent in extents.items() if extent.end > ends.get(p, 0)}


def cut_lost_dead_letters(
    job: ArchiveJob,
    ahead: Mapping[int, Extent],
    diverged: Iterable[Divergence],
    notice: Callable[[str], None],
) -> None:
    """Remove the dead letters beyond the table's end and beyond where the log was cut.

    ahead: see `dead_letters_ahead`. diverged: the partitions whose log was cut. A tag keeps
    the snapshot that has the dead letters. Raises the errors of the catalog.
    """
    ends = agreed_progress(job.address.load(), job.topic_id).ends
    cuts = {}
    for cut in diverged:
        at = max(ends.get(cut.partition, 0), cut.restart or 0)
        cuts[cut.partition] = Extent(min(ahead[cut.partition].start, at), at, cut.epoch_end.epoch)
    if not cuts:
        return
    address = dead_letters_of(job.address)
    table = load_for_commit(address)
    tag = tagged(table)
    cut_dead_letters(load_for_commit(address), job.topic_id, cuts)
    notice(
        f"{job.topic}: removed dead letters of lost records from {'.'.join(address.identifier)}; "
        f"the tag {tag} keeps the snapshot that has them"
    )


def check_pending_dead_letters(job: ArchiveJob) -> None:
    """Raise `SyncError` if the job would not write the pending dead letters as dead letters
    again."""
    refuses = OnBadRecord(job.errors) is OnBadRecord.DEAD_LETTER
    if refuses and not job.raw_timestamp_id:
        return
    pending = [
        f"{job.topic}-{row['partition']}@{row['offset']}"
        for row in _pending(job)
        if not refuses or str(row["reason"]).startswith(BAD_TIMESTAMP)
    ]
    if pending:
        raise SyncError(
            f"{'.'.join(dead_letters_of(job.address).identifier)} has {len(pending)} dead letters, "
            f"from {pending[0]} on, of a batch whose rows {'.'.join(job.identifier)} does not "
            "have: a job ended between its two commits. Run it once with --errors dead-letter and "
            "without --null-timestamps, then with other options"
        )


def _pending(job: ArchiveJob) -> list[dict[str, object]]:
    dead_letters = find_dead_letters(job.address)
    if dead_letters is None:
        return []
    ends = agreed_progress(job.address.load(), job.topic_id).ends
    columns = ("topic", "partition", "offset", "offsetLast", "reason")
    rows = dead_letters.scan(selected_fields=columns).to_arrow().to_pylist()
    return [
        row
        for row in rows
        if row["topic"] == job.topic and row["offsetLast"] >= ends.get(row["partition"], 0)
    ]
