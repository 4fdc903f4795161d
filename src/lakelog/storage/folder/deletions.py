"""Directories of logs that are out of use, until it is time to remove them."""

from __future__ import annotations

from pathlib import Path

from lakelog.runtime.api import Disk


class Deletions:
    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._doomed: list[tuple[int, Path]] = []

    def add(self, folder: Path, due_ms: int = 0) -> None:
        self._doomed.append((due_ms, folder))

    def due(self, now_ms: float) -> list[Path]:
        """Directories to be removed now, each given out once; `Disk.remove_tree` may block."""
        due = [path for when, path in self._doomed if when <= now_ms]
        self._doomed = [entry for entry in self._doomed if entry[0] > now_ms]
        return due

    def purge(self, now_ms: int) -> int:
        """Removes the directories that are due and returns how many."""
        due = self.due(now_ms)
        for path in due:
            self._disk.remove_tree(path)
        return len(due)
