"""Keeps the table's history short.

A commit copies the table's whole metadata, so its cost grows with the snapshots that are kept.
PyIceberg forgets snapshots but leaves their manifests behind; those are removed here. Data files
are never removed: an append-only table's last snapshot names them all.
"""

from __future__ import annotations

import contextlib
import logging

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from lakelog.base.events import event
from lakelog.spark.archive.address import TableAddress
from lakelog.spark.archive.table import SNAPSHOTS_MAX

_log = logging.getLogger("lakelog.spark.archive")
_KEPT = SNAPSHOTS_MAX // 2


def expire_snapshots(address: TableAddress) -> int:
    """Forgets the oldest snapshots once there are too many; returns how many.

    A failure here is none of the batch's, which is in the table already: the next one tries again.
    """
    table = address.load()
    if len(table.metadata.snapshots) <= SNAPSHOTS_MAX:
        return 0
    by_age = sorted(table.metadata.snapshots, key=lambda each: each.timestamp_ms)
    expired = by_age[:-_KEPT]
    try:
        table.maintenance.expire_snapshots().by_ids([s.snapshot_id for s in expired]).commit()
    except Exception as error:  # noqa: BLE001 - a lost race, or a catalog that is busy
        _log.info("old snapshots stay for now: %s", error, extra=event("snapshot_expiry_delayed"))
        return 0
    _remove_manifests(address.load(), expired)
    return len(expired)


def _remove_manifests(table: Table, expired: list[Snapshot]) -> None:
    """Only files that an expired snapshot named and no kept one does."""
    named: set[str] = set()
    for snapshot in expired:
        with contextlib.suppress(OSError):
            named |= _files(snapshot, table)
    for snapshot in table.metadata.snapshots:
        named -= _files(snapshot, table)
    for path in named:
        with contextlib.suppress(OSError):
            table.io.delete(path)


def _files(snapshot: Snapshot, table: Table) -> set[str]:
    manifests = {manifest.manifest_path for manifest in snapshot.manifests(table.io)}
    return manifests | {snapshot.manifest_list}
