"""The files of a table: listed in its store, and referenced by its snapshots.

Iceberg itself never lists a store. A file that no snapshot references can be removed. All kept
snapshots count, not only the current one: ancestors (for time travel), heads of branches, and
tagged snapshots reference files that the current snapshot does not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import pyarrow.fs as pafs
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from lakelog.tables.iceberg.warehouse import is_remote


class StoredFile(NamedTuple):
    """A file of a store. modified_s: seconds since the epoch."""

    path: str
    size: int
    modified_s: float


def stored_files(io: FileIO, location: str) -> Iterator[StoredFile]:
    """Yield the files below a location, with paths as the table's metadata writes them.

    Raises `OSError`, and `ValueError` for a store that PyIceberg does not access through PyArrow.
    """
    if not is_remote(location):
        root = Path(unquote(urlsplit(location).path))
        for path in sorted(root.rglob("*")):
            if path.is_file():
                status = path.stat()
                name = f"{location}/{path.relative_to(root)}"
                yield StoredFile(name, status.st_size, status.st_mtime)
        return
    if not isinstance(io, PyArrowFileIO):
        raise ValueError(f"files of {location} cannot be listed: PyIceberg needs PyArrow for that")
    parts = urlsplit(location)
    system = io.fs_by_scheme(parts.scheme, parts.netloc)
    root_path = f"{parts.netloc}{parts.path}"
    selector = pafs.FileSelector(root_path, recursive=True, allow_not_found=True)
    for info in system.get_file_info(selector):
        if info.type == pafs.FileType.File:
            name = f"{location}{info.path.removeprefix(root_path)}"
            yield StoredFile(name, info.size or 0, (info.mtime_ns or 0) / 1e9)


def remove_unreferenced(table: Table, paths: Iterable[str]) -> None:
    """Remove the data files among `paths` that no snapshot of the table references.

    The caller guarantees that no pending commit can still add them. Raises `OSError` if a snapshot
    cannot be read; no file is removed then.
    """
    # Every kept snapshot counts: a rollback may make it the current one.
    unnamed = set(paths)
    if not unnamed:
        return
    for manifest in _manifests(table).values():
        unnamed -= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io)}
    for path in unnamed:
        with contextlib.suppress(FileNotFoundError):
            table.io.delete(path)


def remove_expired(table: Table, expired: Iterable[Snapshot]) -> None:
    """Remove the manifests and manifest lists that only `expired` snapshots reference.

    table: the table after the expiry. Raises `OSError` if a kept snapshot cannot be read; no file
    is removed then.
    """
    expired = tuple(expired)
    left = {snapshot.snapshot_id for snapshot in table.metadata.snapshots}
    assert left.isdisjoint(s.snapshot_id for s in expired), "the table was loaded after the expiry"
    # Snapshots share manifests, so an expired snapshot may name files of a kept one.
    kept = {path for s in table.metadata.snapshots for path in _metadata_files(table, s)}
    for snapshot in expired:
        with contextlib.suppress(OSError):
            for path in _metadata_files(table, snapshot) - kept:
                with contextlib.suppress(FileNotFoundError):
                    table.io.delete(path)


def referenced_files(table: Table) -> set[str]:
    """Return all data files, delete files, manifests and manifest lists of kept snapshots.

    Raises `OSError` if a snapshot cannot be read.
    """
    manifests = _manifests(table)
    paths = {snapshot.manifest_list for snapshot in table.metadata.snapshots}
    for path, manifest in manifests.items():
        paths.add(path)
        paths |= {
            entry.data_file.file_path
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        }
    return paths | {statistics.statistics_path for statistics in table.metadata.statistics}


def place_of(path: str) -> str:
    """Return the place of a file, which is equal for all forms of its path.

    Programs name the same file as `/w/a`, `file:/w/a` or `file:///w/a`, and a bucket as `s3` or
    `s3a`. Different files may have one place, if their names differ after a `#` or `?` only.
    """
    parts = urlsplit(path)
    return f"{parts.netloc}{unquote(parts.path)}"


def _manifests(table: Table) -> dict[str, ManifestFile]:
    return {
        manifest.manifest_path: manifest
        for snapshot in table.metadata.snapshots
        for manifest in snapshot.manifests(table.io)
    }


def _metadata_files(table: Table, snapshot: Snapshot) -> set[str]:
    manifests = {manifest.manifest_path for manifest in snapshot.manifests(table.io)}
    return manifests | {snapshot.manifest_list}
