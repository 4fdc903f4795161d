"""Files of segments that have left the log: renamed to `.deleted` now, removed after a delay.

A reader that has such a file open continues to read it. The next start removes the files
that are left.
"""

from __future__ import annotations

from pathlib import Path

from lakelog.runtime.api import Disk
from lakelog.storage.files import remove_if_exists
from lakelog.storage.names import DELETED, SEGMENT_SUFFIXES
from lakelog.storage.segments.segment import Segment


class RemovedFiles:
    """Renamed files of one log, in the order of their removal from it."""

    __slots__ = ("_disk", "_due")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._due: list[tuple[int, Path]] = []
        """When each file is due (wall clock, ms), and its present path."""

    def __len__(self) -> int:
        return len(self._due)

    def add(self, segment: Segment, due_ms: int) -> None:
        """Rename the files of a closed segment. Raises `OSError`.

        The `.log` is renamed last: a start ignores index files without one, but takes a `.log`
        without index files for a segment of the log. `due_ms`: wall clock, milliseconds since the
        epoch. Files that do not exist are skipped.
        """
        for suffix in reversed(SEGMENT_SUFFIXES):
            path = segment.path(suffix)
            target = path.with_name(path.name + DELETED)
            try:
                self._disk.rename(path, target)
            except FileNotFoundError:
                continue
            self._due.append((due_ms, target))

    def restore(self, first: int) -> None:
        """Rename the files from number `first` on to their old names. Raises `OSError`.

        Newest first, so that a failure leaves the oldest ones renamed.
        """
        assert 0 <= first <= len(self._due)
        while len(self._due) > first:
            path = self._due[-1][1]
            self._disk.rename(path, path.with_suffix(""))
            self._due.pop()

    def remove_due(self, now_ms: float) -> None:
        """Remove the files that are due at `now_ms`. Raises `OSError`.

        A file that cannot be removed stays due. `now_ms`: wall clock.
        """
        for _, path in [entry for entry in self._due if entry[0] <= now_ms]:
            remove_if_exists(self._disk, path)
        self._due = [entry for entry in self._due if entry[0] > now_ms]
