"""Small steps on a disk that storage takes in several places."""

from __future__ import annotations

from pathlib import Path

from lakelog.runtime.api import Disk


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


def replace(disk: Disk, path: Path, data: bytes) -> None:
    """Replaces a file so that a killed process leaves the old or the new content.

    Unlike `Disk.write_atomic` it waits for no device, so a power failure may leave anything.
    """
    temporary = path.with_name(path.name + ".tmp")
    file = disk.open(temporary, create=True)
    try:
        file.truncate(0)
        file.write_at(0, data)
    finally:
        file.close()
    disk.rename(temporary, path)
