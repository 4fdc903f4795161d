"""Directories of deleted logs, until their removal is due."""

from __future__ import annotations

from pathlib import Path

from lakelog.runtime.api import Disk


class Deletions:
    """Renamed directories and when each is due."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._doomed: list[tuple[int, Path]] = []

    def add(self, folder: Path, due_ms: int = 0) -> None:
        """Remember a directory to be removed at `due_ms` (wall clock).

        In milliseconds since the epoch; 0 stands for now.
        """
        self._doomed.append((due_ms, folder))

    def due(self, now_ms: float) -> list[Path]:
        """Return the directories due at `now_ms`, each once. The caller removes them.

        Times are in milliseconds since the epoch.
        """
        due = [path for when, path in self._doomed if when <= now_ms]
        self._doomed = [entry for entry in self._doomed if entry[0] > now_ms]
        return due

    def purge(self, now_ms: int) -> int:
        """Remove the due directories and return how many; blocks. Raises `OSError`.

        Times are in milliseconds since the epoch.
        """
        due = self.due(now_ms)
        for path in due:
            self._disk.remove_tree(path)
        return len(due)
