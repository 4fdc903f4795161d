"""Commits a batch: its files and the new progress, in one transaction of the table.

Every attempt begins with a fresh look at the table, and every failure, whatever it says, leads
back to that look: a commit that raised may have succeeded. A transaction holds the snapshot it
was built on as a requirement, so it fails when anybody else committed since the look.

Files are removed only after the table was read again and does not name them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from pyiceberg.table import Table

from lakelog.base.events import event
from lakelog.spark.archive.address import TableAddress
from lakelog.spark.archive.expiry import expire_snapshots
from lakelog.spark.archive.progress import (
    Standing,
    advance,
    property_name,
    read_progress,
    standing,
)

_log = logging.getLogger("lakelog.spark.archive")
_ATTEMPTS_MAX = 8


class Outcome(Enum):
    APPENDED = "appended"
    ALREADY_THERE = "already there"


@dataclass(frozen=True, slots=True)
class Batch:
    """What one micro-batch wrote. `ranges` maps partitions to (start, end)."""

    topic_id: str
    query_id: str
    number: int
    ranges: Mapping[int, tuple[int, int]]
    paths: tuple[str, ...]


def commit_batch(address: TableAddress, batch: Batch) -> Outcome:
    """Appends the batch unless the table holds it already.

    Raises `ProgressConflictError` when it may do neither, and the last error of the catalog when
    it never answered.
    """
    for attempt in range(_ATTEMPTS_MAX):
        table = address.load()
        if standing(read_progress(table.properties, batch.topic_id), batch.ranges) is not (
            Standing.NEXT
        ):
            remove_unreferenced(table, batch.paths)
            return Outcome.ALREADY_THERE
        try:
            append(table, batch)
        except Exception as error:  # noqa: BLE001 - whatever it was, the table has the answer
            _log.info(
                "the commit of batch %s is looked at again: %s",
                batch.number,
                error,
                extra=event("archive_commit_retried", batch=batch.number),
            )
            last = error
            time.sleep(0.05 * 2**attempt)
            continue
        expire_snapshots(address)
        return Outcome.APPENDED
    raise last


def append(table: Table, batch: Batch) -> None:
    """One transaction. Without files it still makes a snapshot, which is what fences it."""
    before = read_progress(table.properties, batch.topic_id)
    after = advance(before, batch.ranges, query_id=batch.query_id, number=batch.number)
    summary = {"lakelog.query-id": batch.query_id, "lakelog.batch": str(batch.number)}
    with table.transaction() as transaction:
        transaction.add_files(
            list(batch.paths), snapshot_properties=summary, check_duplicate_files=False
        )
        transaction.set_properties({property_name(batch.topic_id): after.to_text()})


def abandon_batch(address: TableAddress, paths: Iterable[str]) -> None:
    """Removes what a batch wrote, unless the table turns out to hold it."""
    remove_unreferenced(address.load(), tuple(paths))


def remove_unreferenced(table: Table, paths: tuple[str, ...]) -> None:
    if not paths:
        return
    referenced = {task.file.file_path for task in table.scan().plan_files()}
    for path in paths:
        if path not in referenced:
            table.io.delete(path)
