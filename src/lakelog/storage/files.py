"""Steps on a disk that several modules of storage need."""

from __future__ import annotations

from pathlib import Path

from lakelog.runtime.api import Disk
from lakelog.storage.names import LOG, PARTITION_METADATA, file_name, offset_of


def read_if_exists(disk: Disk, path: Path) -> bytes | None:
    """Return the content of a file; `None` if it is missing. Raises `OSError`."""
    try:
        return disk.read(path)
    except FileNotFoundError:
        return None


def remove_if_exists(disk: Disk, path: Path) -> None:
    """Remove a file unless it is missing. Raises `OSError`."""
    try:
        disk.remove(path)
    except FileNotFoundError:
        return


def is_blank(disk: Disk, folder: Path) -> bool:
    """Return whether nothing has ever been written to the log in `folder`. Raises `OSError`."""
    logs = [name for name in disk.list(folder) if name.endswith(LOG)]
    return set(logs) <= {file_name(0, LOG)} and not any(disk.size(folder / n) for n in logs)


def is_foreign(disk: Disk, folder: Path) -> bool:
    """Return whether `folder` has files, but no file of a log. Raises `OSError`."""
    names = disk.list(folder)
    # A creation that was broken off may have left the temporary file alone.
    has_log = any(
        name.startswith(PARTITION_METADATA) or offset_of(name) is not None for name in names
    )
    return bool(names) and not has_log


def replace(disk: Disk, path: Path, data: bytes) -> None:
    """Replace a file so that a killed process leaves the old or the new content. Raises `OSError`.

    Unlike `Disk.write_atomic` it does not sync, so a power failure may leave anything.
    """
    disk.rename(write_aside(disk, path, data), path)


def write_aside(disk: Disk, path: Path, data: bytes) -> Path:
    """Write a file that will be renamed to `path`, without a sync; return its path.

    If it is not renamed, the next start removes it. Raises `OSError`.
    """
    temporary = path.with_name(path.name + ".tmp")
    file = disk.open(temporary, create=True)
    try:
        file.truncate(0)
        file.write_at(0, data)
    finally:
        file.close()
    return temporary
