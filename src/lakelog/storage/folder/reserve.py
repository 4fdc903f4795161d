"""Space that is kept back on the device, for what has to be written when the disk is full.

A start writes: metadata, what recovery rebuilds, checkpoints. So do operations that free space: the
deletion of a topic is a change of metadata, that of records a checkpoint. On a full disk neither
could be done, and nothing would free space. So a file of some megabytes is kept in the data folder.
A start that finds less than that usable empties it, and so does an operation that frees space and
finds none to write to. What it leaves is for such operations alone: the `gate` keeps records and
new logs out until the file is allocated again. A file that is found empty says to the next process
that it has been spent.
"""

from __future__ import annotations

import logging
from pathlib import Path

from lakelog.base.events import event
from lakelog.base.shortage import no_space
from lakelog.runtime.api import Disk
from lakelog.storage.files import remove_if_exists

_logger = logging.getLogger(__name__)

RESERVE = "disk-reserve"
ROOM_BYTES = 1 << 20
"""What must be usable beside it for records to be let in again: a batch of the default size."""
_PLENTY = 4
"""Times its size that must be usable before it is allocated for the first time."""


class SpaceGate:
    """Whether the space that is left is for operations that free some."""

    __slots__ = ("is_shut",)

    def __init__(self) -> None:
        self.is_shut = False

    def check(self) -> None:
        """Raise `OSError` ENOSPC, as the device will once the space is used, while it is shut."""
        if self.is_shut:
            raise no_space()


class SpaceReserve:
    """Of one data folder, whose `gate` it shuts and opens. With a size of 0 there is none."""

    def __init__(self, disk: Disk, folder: Path, size: int, gate: SpaceGate) -> None:
        self._disk = disk
        self._folder = folder
        self._path = folder / RESERVE
        self._size = size
        self.is_held = False
        """Whether it is there, or not wanted."""
        self.gate = gate

    @property
    def is_spent(self) -> bool:
        """Whether it was freed, and has not been allocated since."""
        return self.gate.is_shut

    def open(self) -> None:
        """Finds it, and frees it if less than its size is usable. Raises `OSError`.

        One that an earlier process has spent is allocated again if there is space.
        """
        found = self._disk.exists(self._path)
        self.is_held = found or not self._size
        if not found:
            return
        if not self._size:
            self._disk.remove(self._path)
            self._disk.sync_dir(self._folder)
        elif not self._disk.size(self._path):
            self.is_held, self.gate.is_shut = False, True
            self.renew()
        elif self._usable() < self._size:
            self.free()

    def free(self) -> bool:
        """Empties it if it is held, and returns whether it was; may be in a thread.

        The gate is shut before there is any space. Raises `OSError` with nothing done.
        """
        if not self.is_held or not self._size:
            return False
        self.is_held, self.gate.is_shut = False, True
        try:
            self._empty()
        except OSError:
            self.is_held, self.gate.is_shut = True, False
            raise
        _logger.warning(
            "the disk is full: freed %s for operations that free space; delete topics or records, "
            "shorten retention or add space",
            self._path,
            extra=event("disk_reserve_freed", path=self._path),
        )
        return True

    def renew(self) -> None:
        """Allocates it if there is space; may be in a thread. Raises `OSError`.

        The first time there has to be plenty. When it was spent, writers wait for this.
        """
        wanted = self._size + ROOM_BYTES if self.is_spent else _PLENTY * self._size
        if self.is_held or self._usable() < wanted:
            return
        try:
            self._disk.allocate(self._path, self._size)
        except OSError:
            if self.is_spent:
                self._empty()
            else:
                remove_if_exists(self._disk, self._path)
            raise
        self.is_held, self.gate.is_shut = True, False

    def _empty(self) -> None:
        """Its space is free when the device knows."""
        file = self._disk.open(self._path, create=True)
        try:
            file.truncate(0)
            file.sync()
        finally:
            file.close()
        self._disk.sync_dir(self._folder)

    def _usable(self) -> int:
        return self._disk.space(self._folder)[1]
