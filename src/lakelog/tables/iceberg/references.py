"""Which files a table names, and the removal of those that it does not.

A file counts as named if any kept snapshot names it: an ancestor for time travel, the head of a
branch, a tagged one. The current snapshot alone does not name the files of the others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot


def remove_unreferenced(table: Table, paths: Iterable[str]) -> None:
    """Removes those data files of `paths` that no snapshot of the table names.

    The caller knows that no commit which adds them can still land. Raises `OSError` when a
    snapshot cannot be read; nothing is removed then.
    """
    unnamed = set(paths)
    if not unnamed:
        return
    for manifest in _manifests(table).values():
        unnamed -= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io)}
    for path in unnamed:
        with contextlib.suppress(FileNotFoundError):
            table.io.delete(path)


def remove_expired(table: Table, expired: Iterable[Snapshot]) -> None:
    """Removes manifests and manifest lists of snapshots that `table` has no more.

    Raises `OSError` when a kept snapshot cannot be read; nothing is removed then.
    """
    kept = {path for each in table.metadata.snapshots for path in _metadata_files(table, each)}
    for snapshot in expired:
        with contextlib.suppress(OSError):
            for path in _metadata_files(table, snapshot) - kept:
                with contextlib.suppress(FileNotFoundError):
                    table.io.delete(path)


def _manifests(table: Table) -> dict[str, ManifestFile]:
    return {
        manifest.manifest_path: manifest
        for snapshot in table.metadata.snapshots
        for manifest in snapshot.manifests(table.io)
    }


def _metadata_files(table: Table, snapshot: Snapshot) -> set[str]:
    manifests = {manifest.manifest_path for manifest in snapshot.manifests(table.io)}
    return manifests | {snapshot.manifest_list}
