"""Small steps on a disk that storage takes in several places."""

from __future__ import annotations

from pathlib import Path

from lakelog.runtime.api import Disk
from lakelog.storage.names import LOG, file_name


def read_if_exists(disk: Disk, path: Path) -> bytes | None:
    try:
        return disk.read(path)
    except FileNotFoundError:
        return None


def remove_if_exists(disk: Disk, path: Path) -> None:
    try:
        disk.remove(path)
    except FileNotFoundError:
        return


def is_blank(disk: Disk, folder: Path) -> bool:
    """Whether nothing has ever been written to the log in `folder`."""
    logs = [name for name in disk.list(folder) if name.endswith(LOG)]
    return set(logs) <= {file_name(0, LOG)} and not any(disk.size(folder / n) for n in logs)


def replace(disk: Disk, path: Path, data: bytes) -> None:
    """Replaces a file so that a killed process leaves the old or the new content.

    Unlike `Disk.write_atomic` it waits for no device, so a power failure may leave anything.
    """
    disk.rename(write_aside(disk, path, data), path)


def write_aside(disk: Disk, path: Path, data: bytes) -> Path:
    """Writes what is to be renamed to `path`; a start removes it otherwise. It is not synced."""
    temporary = path.with_name(path.name + ".tmp")
    file = disk.open(temporary, create=True)
    try:
        file.truncate(0)
        file.write_at(0, data)
    finally:
        file.close()
    return temporary
