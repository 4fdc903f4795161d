"""Making a log durable, split so that only the waiting is done in a thread.

`Log.begin_flush` and `Log.finish_flush` belong to the log's owner; `FlushJob.run` touches nothing
but files that stay open for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lakelog.runtime.api import Disk
from lakelog.storage.handles import Handle


@dataclass(slots=True)
class FlushJob:
    """What to sync so that everything before `end_offset` survives a power failure."""

    disk: Disk
    end_offset: int
    generation: int
    """`Log.truncations` at the start: after a truncation the job proves nothing."""
    handles: list[Handle]
    replacements: list[tuple[Path, bytes]]
    """Small files to be written durably."""
    folders: list[Path]

    def run(self) -> None:
        """Blocks. An `OSError` means that nobody knows what is durable: never try again."""
        for handle in self.handles:
            handle.file.sync()
        for path, data in self.replacements:
            self.disk.write_atomic(path, data)
        for folder in self.folders:
            self.disk.sync_dir(folder)

    def release(self) -> None:
        """Gives up the files; `Log.finish_flush` does it after a success."""
        for handle in self.handles:
            handle.release()
        self.handles.clear()
