"""Making a log durable, split so that only the waiting is done in a thread.

`Log.begin_flush` and `Log.finish_flush` belong to the log's owner; `FlushJob.run` touches nothing
but files that stay open for it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lakelog.storage.handles import Handle

if TYPE_CHECKING:
    from lakelog.storage.local_log import LocalLog


@dataclass(slots=True, eq=False)
class FlushJob:
    """What to sync so that everything before `end_offset` survives a power failure."""

    log: LocalLog
    end_offset: int
    generation: int
    """`Log.truncations` at the start: after a truncation the job proves nothing."""
    handles: list[Handle]
    names: list[Path]
    """Small files, and the folders that hold new names."""
    done: bool = False
    failed: bool = False

    def run(self) -> None:
        """Blocks. An `OSError` means that nobody knows what is durable: never try again."""
        try:
            for handle in self.handles:
                handle.file.sync()
            for path in self.names:
                with suppress(FileNotFoundError):  # the log has been deleted meanwhile
                    self._sync_name(path)
        except OSError:
            self.failed = True
            raise
        self.done = True

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
        for handle in self.handles:
            handle.release()
        self.handles.clear()
