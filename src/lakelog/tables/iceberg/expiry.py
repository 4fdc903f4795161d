"""Removes old snapshots of a table.

A commit copies the table's whole metadata, so its cost grows with the number of snapshots.
PyIceberg removes expired snapshots from the metadata but not their manifest files; this module
deletes them. It deletes no data files; `upkeep/cleanup.py` does. A snapshot with a tag or a branch
stays as long as these, and does not delay the expiry of other snapshots.

The table's own policy comes first: the properties `history.expire.*`, and the same settings of a
branch, keep snapshots longer than the defaults of this module (Iceberg spec, "Snapshot Retention
Policy").
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from lakelog.base.events import event
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.exchange import locked_for_commit
from lakelog.tables.iceberg.stored_files import remove_expired
from lakelog.tables.iceberg.table import SNAPSHOTS_MAX

_log = logging.getLogger("lakelog.tables")
_KEPT = SNAPSHOTS_MAX // 2
MAX_AGE, MIN_KEPT = "history.expire.max-snapshot-age-ms", "history.expire.min-snapshots-to-keep"


@dataclass(frozen=True, slots=True)
class Policy:
    """Which snapshots of the main branch stay, unless the table has a policy of its own.

    kept: at least so many of the newest. max_age_ms: older ones beyond these expire; with `None`
    only the number counts.
    """

    kept: int
    max_age_ms: int | None = None

    def of(self, table: Table) -> Policy:
        """Return this policy with the table's `history.expire.*` in its place."""
        own = table.properties
        kept = int(own[MIN_KEPT]) if MIN_KEPT in own else self.kept
        age = int(own[MAX_AGE]) if MAX_AGE in own else self.max_age_ms
        return Policy(max(1, kept), age)


def expire_snapshots(address: TableAddress) -> int:
    """Remove the oldest snapshots if there are too many; return how many were removed.

    Errors are logged, not raised: the batch is already committed, and the next one tries again. If
    the outcome of an expiry is unknown, no file is removed.
    """
    try:
        table = address.load()
        # Not before: an expiry after each commit would be a second commit each time.
        if len(_unnamed(table)) < SNAPSHOTS_MAX:
            return 0
        return expire_by(address, Policy(_KEPT), int(time.time() * 1000))
    except Exception as error:  # noqa: BLE001 - a concurrent commit, or a busy catalog or store
        _log.info(
            "expiry of old snapshots is delayed: %s",
            error,
            extra=event("snapshot_expiry_delayed"),
        )
        return 0


def expire_by(address: TableAddress, policy: Policy, now_ms: int) -> int:
    """Remove the snapshots that no policy keeps; return how many.

    now_ms: milliseconds since the epoch. Raises `TableReplacedError`, `OSError` and the errors of
    the catalog; no file is removed then.
    """
    with locked_for_commit(address) as table:
        expired = expirable(table, policy, now_ms)
        if not expired:
            return 0
        ids = [snapshot.snapshot_id for snapshot in expired]
        assert table.metadata.current_snapshot_id not in ids, "the current snapshot stays"
        # The metadata first: a crash in between leaves files without a reference, never a reference
        # without its file.
        table.maintenance.expire_snapshots().by_ids(ids).commit()
    # Loaded again: a concurrent commit may reuse a manifest of an expired snapshot.
    remove_expired(address.load(), expired)
    return len(expired)


def expirable(table: Table, policy: Policy, now_ms: int) -> list[Snapshot]:
    """Return the snapshots that neither the policy nor a tag or branch keeps, oldest first."""
    kept = {reference.snapshot_id for reference in table.metadata.refs.values()}
    own = policy.of(table)
    for name, reference in table.metadata.refs.items():
        if reference.snapshot_ref_type is SnapshotRefType.BRANCH and name != "main":
            kept |= _of_branch(table, reference, now_ms)
    newest = sorted(table.metadata.snapshots, key=lambda s: -s.timestamp_ms)
    main = [s for s in newest if s.snapshot_id not in kept or _is_head(table, s)]
    limit = None if own.max_age_ms is None else now_ms - own.max_age_ms
    for number, snapshot in enumerate(main):
        is_young = limit is not None and snapshot.timestamp_ms >= limit
        if number < own.kept or is_young:
            kept.add(snapshot.snapshot_id)
    expired = [s for s in table.metadata.snapshots if s.snapshot_id not in kept]
    return sorted(expired, key=lambda s: s.timestamp_ms)


def _is_head(table: Table, snapshot: Snapshot) -> bool:
    return bool(snapshot.snapshot_id == table.metadata.current_snapshot_id)


def _of_branch(table: Table, branch: SnapshotRef, now_ms: int) -> set[int]:
    """Return the snapshots that the settings of a branch keep: its head at least."""
    count = branch.min_snapshots_to_keep or 1
    limit = now_ms - branch.max_snapshot_age_ms if branch.max_snapshot_age_ms else None
    kept: set[int] = set()
    snapshot = table.metadata.snapshot_by_id(branch.snapshot_id)
    while snapshot is not None:
        assert snapshot.snapshot_id not in kept, "a snapshot is not its own ancestor"
        is_young = limit is not None and snapshot.timestamp_ms >= limit
        if len(kept) >= count and not is_young:
            break
        kept.add(snapshot.snapshot_id)
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.metadata.snapshot_by_id(parent)
    return kept


def _unnamed(table: Table) -> list[Snapshot]:
    # Tags and branches keep their snapshots (Iceberg spec, "Snapshot Retention Policy").
    named = {reference.snapshot_id for reference in table.metadata.refs.values()}
    return [s for s in table.metadata.snapshots if s.snapshot_id not in named]
