"""Commits a batch: its files and the new progress, in one transaction of the table.

Every attempt loads the table first, also after a failure: a commit that raised an error may have
succeeded. A transaction requires the snapshot that it was built on, so it fails if another commit
came first. The batch's files are removed only if the commit certainly failed; they stay if its
outcome is unknown. `state_of` returns the table after a commit, as callers of a job see it.

The dead letters of a batch are committed to their own table first, so no commit of the batch can
leave them out. `dead_letters.py` says why a repeated batch does not add them twice.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum

from pyiceberg.table import Table

from lakelog.base.events import event
from lakelog.tables.archive.dead_letters import DeadLetters, commit_dead_letters
from lakelog.tables.archive.failures import SyncError
from lakelog.tables.archive.history import (
    ProgressMismatchError,
    agreed_progress,
    before_extents,
    record,
)
from lakelog.tables.archive.progress import (
    ArchiveJob,
    Extent,
    ForeignTableError,
    Progress,
    ProgressConflictError,
    ProgressFormatError,
    Standing,
    advance,
    check_owner,
    read_progress,
    standing,
)
from lakelog.tables.archive.refusals import NAMED_MAX, RefusedCount, Span
from lakelog.tables.iceberg.address import TableAddress, TableReplacedError
from lakelog.tables.iceberg.catalog import (
    NOT_COMMITTED,
    CatalogUnwritableError,
    raise_if_unwritable,
)
from lakelog.tables.iceberg.commits import attempts, expire_snapshots, locked_for_commit
from lakelog.tables.iceberg.stored_files import remove_unreferenced
from lakelog.tables.iceberg.table import rows_in
from lakelog.tables.iceberg.warehouse import WarehouseFullError

_log = logging.getLogger("lakelog.tables")


class CommitOutcome(Enum):
    """The outcome of `commit_batch`."""

    APPENDED = "appended"
    ALREADY_THERE = "already there"


@dataclass(frozen=True, slots=True)
class Batch:
    """The files and the progress of one batch. The progress advances even without files.

    refused: how many offsets are not rows, by partition. named: the first of them. dead_letters:
    the files and the table of dead letters; `None` without any.
    """

    topic_id: str
    query_id: str
    number: int
    extents: Mapping[int, Extent]
    paths: tuple[str, ...]
    skipped: tuple[Span, ...] = ()
    refused: Mapping[int, RefusedCount] = field(default_factory=dict)
    named: tuple[Span, ...] = ()
    dead_letters: DeadLetters | None = None


def commit_batch(address: TableAddress, batch: Batch) -> CommitOutcome:
    """Append the batch unless the table already holds it.

    Raises `ProgressConflictError` if the batch neither follows the table's progress nor is part of
    it, `ForeignTableError` if another topic has committed to the table, `ProgressMismatchError`,
    `ProgressFormatError`, `TableReplacedError`, the errors of `commit_dead_letters`, and after 16
    attempts the last error of the catalog.
    """
    is_unknown = False
    for _ in attempts():
        with locked_for_commit(
            address
        ) as table:  # its progress shows whether the last attempt succeeded
            before = _followed(table, batch, is_unknown=is_unknown)
            if before is None:
                return CommitOutcome.ALREADY_THERE
            _commit_dead_letters(table, batch, is_unknown=is_unknown)
            try:
                append(table, batch, before)
            except Exception as error:  # noqa: BLE001 - the next attempt reads the outcome from the table
                try:
                    raise_if_unwritable(error, address.catalog)
                except (CatalogUnwritableError, WarehouseFullError):
                    _clean_up(table, batch, is_unknown=is_unknown)
                    raise
                _log.info(
                    "the commit of batch %s is checked and retried: %s",
                    batch.number,
                    error,
                    extra=event("archive_commit_retried", batch=batch.number),
                )
                # A commit has no effect if it was rejected or found the catalog locked. Any
                # other may still succeed later.
                is_unknown |= not isinstance(error, NOT_COMMITTED)
                last = error
                continue
        # After the commit: an expiry that fails must not fail the batch.
        expire_snapshots(address)
        return CommitOutcome.APPENDED
    raise last


def append(table: Table, batch: Batch, before: Progress) -> None:
    """Append the batch in one transaction.

    A batch without files makes a snapshot too: the snapshot fences commits of other jobs. Raises
    the errors of the catalog; the outcome is then unknown unless it is in `NOT_COMMITTED`.
    """
    after = advance(
        before,
        batch.extents,
        query_id=batch.query_id,
        number=batch.number,
        refused=batch.refused,
    )
    skipped = (*batch.skipped, *before_extents(before, batch.extents))
    named = batch.named[:NAMED_MAX]
    with table.transaction() as transaction:
        record(transaction, batch.topic_id, after, batch.paths, skipped, named)


def abandon_batch(address: TableAddress, paths: Iterable[str]) -> None:
    """Remove the files of a batch for which no commit was tried. Raises `TableReplacedError`."""
    # Read again, so that a snapshot that references one of the files keeps it.
    remove_unreferenced(address.load(), tuple(paths))


def _followed(table: Table, batch: Batch, *, is_unknown: bool) -> Progress | None:
    """Return the progress that the batch follows; `None` if the table has its offsets already.

    The files of a batch that cannot be appended are removed. Raises as `commit_batch`.
    """
    try:
        check_owner(table.properties, batch.topic_id)
        before = agreed_progress(table, batch.topic_id)
        status = standing(before, batch.extents)
    except (ForeignTableError, ProgressConflictError, ProgressMismatchError):
        _clean_up(table, batch, is_unknown=is_unknown)
        raise
    if status is Standing.NEXT:
        return before
    # Perhaps from an earlier attempt: `remove_unreferenced` keeps the files that its snapshots
    # reference.
    _clean_up(table, batch, is_unknown=is_unknown)
    return None


def _commit_dead_letters(table: Table, batch: Batch, *, is_unknown: bool) -> None:
    """Commit the dead letters of the batch, if it has some. Raises as `commit_dead_letters`."""
    if batch.dead_letters is None:
        return
    try:
        commit_dead_letters(
            batch.dead_letters, batch.topic_id, batch.query_id, batch.number, batch.extents
        )
    except BaseException:
        if not is_unknown:
            remove_unreferenced(table, batch.paths)
        raise


def _clean_up(table: Table, batch: Batch, *, is_unknown: bool) -> None:
    """Remove the batch's files, unless a commit of unknown outcome may still add them."""
    if not is_unknown:
        remove_unreferenced(table, batch.paths)
    # No commit of dead letters is pending here: a failed one has raised its error.
    if batch.dead_letters is not None:
        with suppress(TableReplacedError):
            abandon_batch(batch.dead_letters.address, batch.dead_letters.paths)


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
    return SyncProgress(rows_in(table), ends, table.metadata.current_snapshot_id)
