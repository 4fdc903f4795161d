"""Keeps the table's history short.

A commit copies the table's whole metadata, so its cost grows with the snapshots that are kept.
PyIceberg forgets snapshots but leaves their manifests behind; those are removed here. Data files
are never removed: an append-only table's last snapshot names them all. Snapshots that a tag or a
branch names stay until their owner removes it, and hold up none of the others.
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
    """Forgets the oldest snapshots once there are too many; returns how many.

    A failure here is none of the batch's, which is in the table already: the next one tries again.
    After an expiry whose outcome is unknown no file is removed.
    """
    try:
        table = load_for_commit(address)
        expired = _expired(table)
        if not expired:
            return 0
        ids = [snapshot.snapshot_id for snapshot in expired]
        table.maintenance.expire_snapshots().by_ids(ids).commit()
        remove_expired(address.load(), expired)
    except Exception as error:  # noqa: BLE001 - a lost race, or a catalog or store that is busy
        _log.info(
            "old snapshots or their files stay for now: %s",
            error,
            extra=event("snapshot_expiry_delayed"),
        )
        return 0
    return len(expired)


def _expired(table: Table) -> list[Snapshot]:
    named = {reference.snapshot_id for reference in table.metadata.refs.values()}
    unnamed = [each for each in table.metadata.snapshots if each.snapshot_id not in named]
    if len(unnamed) < SNAPSHOTS_MAX:
        return []
    return sorted(unnamed, key=lambda each: each.timestamp_ms)[: 1 - _KEPT]
