"""Space of a data folder: a reserve for writes that must succeed when the disk is full, and the
directories of deleted logs until their removal is due.

A start writes metadata, rebuilt files and checkpoints. Operations that free space write too: the
deletion of a topic changes the metadata, and deleted records change a checkpoint. On a full disk
no such operation could run, and nothing would free space. So the data folder has a file of some
megabytes. A start with less usable space than its size empties the file, and so does an operation
that frees space and finds no space for its writes. The space is for such operations alone: the
`space_guard` rejects records and new logs until the file is allocated again. To the next
process, an empty file means a spent reserve.
"""

from __future__ import annotations

import logging
from contextlib import closing
from pathlib import Path

from lakelog.base.errors import no_space
from lakelog.base.events import event
from lakelog.runtime.api import Disk
from lakelog.storage.files import remove_durably, remove_if_exists


class Deletions:
    """Renamed directories and when each is due: wall clock, milliseconds since the epoch."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._doomed: list[tuple[int, Path]] = []

    def add(self, folder: Path, due_ms: int = 0) -> None:
        """Remember a directory to be removed at `due_ms`; 0 stands for now."""
        self._doomed.append((due_ms, folder))

    def due(self, now_ms: float) -> list[Path]:
        """Return the directories due at `now_ms`, each once. The caller removes them."""
        due = [path for when, path in self._doomed if when <= now_ms]
        self._doomed = [entry for entry in self._doomed if entry[0] > now_ms]
        return due

    def purge(self, now_ms: int) -> int:
        """Remove the due directories and return how many; blocks. Raises `OSError`."""
        due = self.due(now_ms)
        for path in due:
            self._disk.remove_tree(path)
        return len(due)


_logger = logging.getLogger(__name__)

RESERVE = "disk-reserve"
HEADROOM_BYTES = 1 << 20
"""Usable space beside the reserve before records are accepted again: a batch of default size."""
_PLENTY = 4
"""Multiple of its size that must be usable before it is first allocated."""


class DiskSpaceGuard:
    """Rejects writes while the remaining space is reserved for operations that free some."""

    __slots__ = ("rejects_writes",)

    def __init__(self) -> None:
        self.rejects_writes = False

    def check(self) -> None:
        """While it rejects writes, raise `OSError` ENOSPC, as the device does when the space is
        used up."""
        if self.rejects_writes:
            raise no_space()


class SpaceReserve:
    """The reserve of one data folder, whose `space_guard` it turns on and off; none with a size of
    0."""

    def __init__(self, disk: Disk, folder: Path, size: int, space_guard: DiskSpaceGuard) -> None:
        assert size >= 0
        self._disk = disk
        self._folder = folder
        self._path = folder / RESERVE
        self._size = size
        self.is_held = False
        """Whether it is allocated, or its size is 0."""
        self.space_guard = space_guard

    @property
    def is_spent(self) -> bool:
        """Whether it was freed, and has not been allocated since."""
        return self.space_guard.rejects_writes

    def open(self) -> None:
        """Look for the file, and free it if less than its size is usable. Raises `OSError`.

        A reserve that an earlier process has spent is allocated again if there is space.
        """
        exists = self._disk.exists(self._path)
        self.is_held = exists or not self._size
        if not exists:
            return
        if not self._size:
            remove_durably(self._disk, self._path)
        elif not self._disk.size(self._path):
            self.is_held, self.space_guard.rejects_writes = False, True
            self.renew()
        elif self._usable() < self._size:
            self.free()

    def free(self) -> bool:
        """Empty the file if it is held, and return whether it was; may be in a thread.

        The guard rejects writes before there is any space. Raises `OSError` with nothing done.
        """
        if not self.is_held or not self._size:
            return False
        self.is_held, self.space_guard.rejects_writes = False, True
        try:
            self._empty()
        except OSError:
            self.is_held, self.space_guard.rejects_writes = True, False
            raise
        _logger.warning(
            "the disk is full: freed %s for operations that free space; delete topics or records, "
            "shorten retention or add space",
            self._path,
            extra=event("disk_reserve_freed", path=self._path),
        )
        return True

    def renew(self) -> None:
        """Allocate the file if there is space; may be in a thread. Raises `OSError`.

        The first time a multiple of its size must be usable. After it was spent, less is required,
        because producers wait for it.
        """
        required_bytes = self._size + HEADROOM_BYTES if self.is_spent else _PLENTY * self._size
        if self.is_held or self._usable() < required_bytes:
            return
        try:
            self._disk.allocate(self._path, self._size)
        except OSError:
            if self.is_spent:
                self._empty()
            else:
                remove_if_exists(self._disk, self._path)
            raise
        self.is_held, self.space_guard.rejects_writes = True, False

    def _empty(self) -> None:
        """Truncate the file, durably: only then the device has the space."""
        with closing(self._disk.open(self._path, create=True)) as file:
            file.truncate(0)
            file.sync()
        self._disk.sync_dir(self._folder)

    def _usable(self) -> int:
        return self._disk.space(self._folder)[1]
