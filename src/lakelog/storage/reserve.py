"""Space that is kept back on the device, for a start that finds the disk full.

Every start writes: metadata, what recovery rebuilds, checkpoints. So a broker that was killed when
its disk was full could not start, and nothing would free space for it. A file of some megabytes is
kept in the data folder. A start that finds less than that usable removes it; it is allocated again
when there is plenty.
"""

from __future__ import annotations

import logging
from pathlib import Path

from lakelog.base.events import event
from lakelog.runtime.api import Disk
from lakelog.storage.files import remove_if_exists

_logger = logging.getLogger(__name__)

RESERVE = "disk-reserve"
_PLENTY = 4
"""Times its size that must be usable before it is allocated."""


class SpaceReserve:
    """Of one data folder. With a size of 0 there is none."""

    def __init__(self, disk: Disk, folder: Path, size: int) -> None:
        self._disk = disk
        self._folder = folder
        self._path = folder / RESERVE
        self._size = size
        self.is_held = False
        """Whether it is there, or not wanted."""
        self.is_spent = False
        """Whether it was freed by `open`, and has not been allocated since."""

    def open(self) -> None:
        """Finds it, or frees it if less than its size is usable. Raises `OSError`."""
        found = self._disk.exists(self._path)
        self.is_spent = found and self._usable() < self._size
        if self.is_spent or (found and not self._size):
            self._disk.remove(self._path)
            self._disk.sync_dir(self._folder)
        if self.is_spent:
            _logger.warning(
                "the disk is full: freed %s to start with; delete records, shorten retention or "
                "add space",
                self._path,
                extra=event("disk_reserve_freed", path=self._path),
            )
        self.is_held = not self._size or (found and not self.is_spent)

    def renew(self) -> None:
        """Allocates it if there is plenty of space; may be in a thread. Raises `OSError`."""
        if self.is_held or self._usable() < _PLENTY * self._size:
            return
        try:
            self._disk.allocate(self._path, self._size)
        except OSError:
            remove_if_exists(self._disk, self._path)
            raise
        self.is_held, self.is_spent = True, False

    def _usable(self) -> int:
        return self._disk.space(self._folder)[1]
