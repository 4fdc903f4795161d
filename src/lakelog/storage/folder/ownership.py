"""Ownership of a data folder: by one process, of one node, after a clean stop or not."""

from __future__ import annotations

import logging
import re
from pathlib import Path

from lakelog.base.events import event
from lakelog.runtime.api import Disk, FileLock, Random
from lakelog.storage.errors import DirectoryInUse
from lakelog.storage.files import read_if_exists, remove_durably
from lakelog.storage.folder.identity import MetaProperties, load_identity
from lakelog.storage.folder.known_logs import KNOWN_LOGS
from lakelog.storage.marks import FOLDER_SEAL, DurableMark, FolderSeal, PageCacheMark

_logger = logging.getLogger(__name__)

_LOCK = ".lock"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
_CLEAN_SHUTDOWN_CONTENT = b'{"version":0,"brokerEpoch":%d}'
_IS_CLEAN = re.compile(rb'\{"version":0,"brokerEpoch":(-1|\d{1,19})\}')


class Ownership:
    """The lock and the marks of one folder, from `take` to `release`."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self.path = path
        self._disk = disk
        self._meta: MetaProperties | None = None
        self._lock: FileLock | None = None
        self.page_cache = PageCacheMark(path, disk, path / _LOCK)
        self.durable_mark = DurableMark(path, disk, path / _LOCK)
        self.seal = FolderSeal(path / FOLDER_SEAL, path / KNOWN_LOGS, disk)
        self.clean = False
        """Whether the last process that used the folder stopped cleanly."""
        self.cached = False
        """Whether the page cache still has all that that process wrote."""
        self.broker_epoch = -1
        """The broker epoch up to which the folder has all that the broker wrote.

        -1 if that is unknown: after a power failure, and in a new folder. A registration raises
        it for the later marks, because the controller then knows the earlier losses.
        """

    @property
    def meta(self) -> MetaProperties:
        assert self._meta is not None, "the folder is not taken"
        return self._meta

    def take(self, random: Random, cluster_id: str | None, node_id: int) -> None:
        """Lock the folder and read its marks. Raises `DirectoryInUse`, `WrongDirectory`, `OSError`.

        The lock is free again after an error.
        """
        assert self._lock is None
        self._make_folder()
        try:
            self._lock = self._disk.lock(self.path / _LOCK)
        except BlockingIOError:
            raise DirectoryInUse(
                f"{self.path} is in use by another process (it holds {self.path / _LOCK})"
            ) from None
        try:
            self._meta = load_identity(self._disk, self.path, random, cluster_id, node_id)
            self._find_marks()
        except BaseException:
            self.release()
            raise
        self._disk.watch(self.page_cache.on_failure)

    def _find_marks(self) -> None:
        """Read the marks, which count only under an intact seal. Raises `OSError`."""
        self.seal.open(is_expected=self.page_cache.names_seal())
        content = read_if_exists(self._disk, self.path / CLEAN_SHUTDOWN)
        clean = _IS_CLEAN.fullmatch(content or b"")
        if content is not None and clean is None:
            _logger.warning(
                "%s is damaged; recovering all logs",
                self.path / CLEAN_SHUTDOWN,
                extra=event("clean_shutdown_ignored", path=self.path / CLEAN_SHUTDOWN),
            )
        if not self.seal.is_of_stop:
            clean = None
        cached = self.page_cache.find() if self.seal.is_intact else None
        self.clean, self.cached = clean is not None, cached is not None
        self.durable_mark.is_void = not self.seal.is_intact
        if clean is not None:
            self.broker_epoch = int(clean[1])
        elif cached is not None:
            self.broker_epoch = cached

    def _make_folder(self) -> None:
        """Create a missing folder durably: without its name, all that it holds would be lost."""
        missing = [
            folder for folder in (self.path, *self.path.parents) if not self._disk.exists(folder)
        ]
        self._disk.make_dirs(self.path)
        for folder in reversed(missing):
            self._disk.sync_dir(folder.parent)

    def claim_clean(self) -> None:
        """Mark a clean stop, durably. Raises `OSError`."""
        assert self._lock is not None
        self.seal.stop()
        content = _CLEAN_SHUTDOWN_CONTENT % self.broker_epoch
        self._disk.write_atomic(self.path / CLEAN_SHUTDOWN, content)

    def disclaim_clean(self) -> None:
        """Remove the marks before anything in the folder changes; `clean` and `cached` stay.

        Raises `OSError`.
        """
        self.page_cache.remove()
        remove_durably(self._disk, self.path / CLEAN_SHUTDOWN)
        if self.durable_mark.is_void:
            self.durable_mark.remove()
        # Last: a start that is killed before must find the seal as it was.
        self.seal.begin()

    def trust_page_cache(self) -> None:
        """Let the next start trust the page cache if this process is killed.

        Called when the losses before this start have been noted durably. Never raises.
        """
        self.page_cache.write(self.broker_epoch)

    def release(self) -> None:
        """Release the lock of the folder, if it is held."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None
