"""Removes old snapshots of a table.

A commit copies the table's whole metadata, so its cost grows with the number of snapshots.
PyIceberg removes expired snapshots from the metadata but not their manifest files; this module
deletes them. Data files are never deleted: the last snapshot of an append-only table names all of
them. A snapshot with a tag or a branch stays as long as these, and does not delay the expiry of
other snapshots.
"""

from __future__ import annotations

import logging

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from lakelog.base.events import event
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.references import remove_expired
from lakelog.tables.iceberg.table import SNAPSHOTS_MAX, load_for_commit

_log = logging.getLogger("lakelog.tables")
_KEPT = SNAPSHOTS_MAX // 2


def expire_snapshots(address: TableAddress) -> int:
    """Remove the oldest snapshots if there are too many; return how many were removed.

    Errors are logged, not raised: the batch is already committed, and the next one tries again. If
    the outcome of an expiry is unknown, no file is removed.
    """
    try:
        table = load_for_commit(address)
        expired = _expired(table)
        if not expired:
            return 0
        ids = [snapshot.snapshot_id for snapshot in expired]
        # The metadata first: a crash in between leaves files without a reference, never a reference
        # without its file.
        table.maintenance.expire_snapshots().by_ids(ids).commit()
        # Loaded again: a concurrent commit may reuse a manifest of an expired snapshot.
        remove_expired(address.load(), expired)
    except Exception as error:  # noqa: BLE001 - a concurrent commit, or a busy catalog or store
        _log.info(
            "expiry of old snapshots is delayed: %s",
            error,
            extra=event("snapshot_expiry_delayed"),
        )
        return 0
    return len(expired)


def _expired(table: Table) -> list[Snapshot]:
    # Tags and branches keep their snapshots (Iceberg spec, "Snapshot Retention Policy").
    named = {reference.snapshot_id for reference in table.metadata.refs.values()}
    unnamed = [each for each in table.metadata.snapshots if each.snapshot_id not in named]
    if len(unnamed) < SNAPSHOTS_MAX:
        return []
    return sorted(unnamed, key=lambda each: each.timestamp_ms)[: 1 - _KEPT]
