"""Making a log durable, split so that only the waiting is done in a thread.

`Log.begin_flush` and `Log.finish_flush` belong to the log's owner; `FlushJob.run` touches nothing
but files that stay open for it.

The kernel tells of pages it could not write once, to whoever syncs the file first. So the syncs of
a log come one after another, each together with its verdict, which the next can look at.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lakelog.base.shortage import lacks_descriptors
from lakelog.storage.names import SYNC_FAILED
from lakelog.storage.segments.handles import Handle

if TYPE_CHECKING:
    from lakelog.storage.local_log import LocalLog


@dataclass(slots=True, eq=False)
class FlushJob:
    """What to sync so that everything before `end_offset` survives a power failure."""

    log: LocalLog
    end_offset: int
    stable_offset: int
    """The last stable offset, below which every transaction is decided before `end_offset`."""
    generation: int
    """`Log.truncations` at the start: after a truncation the job proves nothing."""
    handles: list[Handle]
    names: list[Path]
    """Small files, and the folders that hold new names."""
    done: bool = False
    failed: bool = False

    def run(self) -> None:
        """Blocks, as long as another job of the log runs too.

        After an `OSError` it is unknown what is durable, and the job must not be repeated. Only
        when `lacks_descriptors` is true of it may `LocalLog.put_off_flush` be called.
        """
        with self.log.syncing:
            try:
                self._sync()
            except OSError as error:
                if not lacks_descriptors(error):  # else the device has reported nothing
                    self.failed = True
                    self._leave_mark()
                raise
            self.done = True

    def _leave_mark(self) -> None:
        """For the next start. It need not be durable: it lasts as long as the cache it is about."""
        with suppress(OSError):
            self.log.handles.disk.open(self.log.folder / SYNC_FAILED, create=True).close()

    def _sync(self) -> None:
        for handle in self.handles:
            handle.file.sync()
        for path in self.names:
            with suppress(FileNotFoundError):  # the log has been deleted meanwhile
                self._sync_name(path)

    def _sync_name(self, path: Path) -> None:
        disk = self.log.handles.disk
        if disk.is_dir(path):
            disk.sync_dir(path)
            return
        file = disk.open(path)
        try:
            file.sync()
        finally:
            file.close()

    def release(self) -> None:
        """Gives up the files. A job that has not succeeded leaves its log `broken`.

        `Log.finish_flush` calls it after a success, the owner after a failure.
        """
        self.log.broken |= not self.done
        self.let_go()

    def let_go(self) -> None:
        """Gives up the files of a job that no longer needs them, or has not begun."""
        for handle in self.handles:
            handle.release()
        self.handles.clear()
