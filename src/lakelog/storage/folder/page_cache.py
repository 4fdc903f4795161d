"""A mark whether the page cache still has all that an earlier process wrote and did not sync.

It has after `kill -9`, and has not after a power failure. The file `boot-id` in the data folder
names the page cache (`Disk.page_cache_id`). The file exists only while no loss is known:
a start removes it before it changes any log, and writes it once it has noted all losses. The
first write or sync that fails removes it until the next start, because the kernel drops pages that
it could not write. A missing, damaged or different file counts as a power failure.

The second line is the broker epoch of the process that wrote the file. It shows whether a later
process of the same broker has run elsewhere meanwhile (KIP-966). The third line says that this
process has sealed the folder (`lakelog.storage.seal`): a folder without its seal was changed then.
"""

from __future__ import annotations

import logging
from pathlib import Path

from lakelog.base.events import event
from lakelog.runtime.api import Disk
from lakelog.storage.files import read_if_exists

_logger = logging.getLogger(__name__)

BOOT_ID = "boot-id"
_SEALED = b"sealed\n"


class PageCacheMark:
    """The file `boot-id` of one data folder.

    The id is derived from `lock`, the folder's lock file: a copy of the folder has another id.
    """

    def __init__(self, folder: Path, disk: Disk, lock: Path) -> None:
        self.path = folder / BOOT_ID
        self._disk = disk
        self._lock = lock
        self.has_failed = False
        """Whether a write or sync of this process has failed for another reason than a shortage."""

    def find(self) -> int | None:
        """Return the broker epoch of the last process if it wrote to the same page cache.

        -1 stands for an unknown epoch, None for another page cache.
        """
        try:
            content = (read_if_exists(self._disk, self.path) or b"").removesuffix(_SEALED)
            page_cache, end, epoch = content.partition(b"\n")
            if not end or page_cache != self._present():
                return None
            return int(epoch) if epoch.endswith(b"\n") and epoch[:-1].isdigit() else -1
        except OSError as error:
            _logger.warning(
                "%s cannot be compared with the kernel's: %s; an unclean stop counts as a power "
                "failure",
                self.path,
                error,
                extra=event("boot_id_ignored", path=self.path),
            )
            return None

    def names_seal(self) -> bool:
        """Return whether the process that wrote the file has sealed the folder, or may have."""
        try:
            return (read_if_exists(self._disk, self.path) or b"").endswith(b"\n" + _SEALED)
        except OSError:  # `find` logs it
            return True

    def write(self, broker_epoch: int) -> None:
        """Write the id of the present page cache, durably, unless a write has failed before.

        A failure is only logged: without the file the next start assumes the worst.
        """
        try:
            if not self.has_failed:
                content = self._present() + b"\n%d\n" % broker_epoch + _SEALED
                self._disk.write_atomic(self.path, content)
            if self.has_failed:  # meanwhile, in another thread
                self.remove()
        except OSError as error:
            _logger.warning(
                "%s cannot be written: %s; an unclean stop will count as a power failure",
                self.path,
                error,
                extra=event("boot_id_ignored", path=self.path),
            )

    def remove(self) -> None:
        """Remove the file, durably. Raises `OSError`."""
        if self._disk.exists(self.path):
            self._disk.remove(self.path)
            self._disk.sync_dir(self.path.parent)

    def on_failure(self) -> None:
        """Remove the file until the next start: cached pages may never reach the device."""
        if self.has_failed:
            return
        self.has_failed = True
        try:
            self.remove()
        except OSError as error:
            _logger.error(
                "a write or sync failed, and %s cannot be removed: %s; remove it before the next "
                "start, unless the machine is rebooted",
                self.path,
                error,
                extra=event("boot_id_not_removed", path=self.path),
            )

    def _present(self) -> bytes:
        return self._disk.page_cache_id(self._lock).encode()
