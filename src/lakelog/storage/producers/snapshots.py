"""The producer snapshots of one log: one at each segment's base, and the newest.

With a snapshot, the log before its offset need not be replayed. It is used only if its checksum is
right and the log reaches its offset; otherwise an older one, or the log itself, is used.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Collection, Iterable
from pathlib import Path

from lakelog.runtime.api import Disk
from lakelog.storage.files import read_if_exists, remove_if_exists, replace
from lakelog.storage.names import SNAPSHOT, file_name
from lakelog.storage.producers.snapshot_file import (
    MalformedSnapshot,
    decode_snapshot,
    encode_snapshot,
)
from lakelog.storage.producers.state import ProducerEntry, ProducerStateTable


class ProducerSnapshots:
    """The snapshot files of one log; `offsets` has their offsets, sorted."""

    __slots__ = ("_disk", "folder", "offsets")

    def __init__(self, disk: Disk, folder: Path, offsets: Iterable[int] = ()) -> None:
        self._disk = disk
        self.folder = folder
        self.offsets = sorted(offsets)

    def copy(self) -> ProducerSnapshots:
        """Return a copy for a thread, while the owner continues to write and remove files."""
        return ProducerSnapshots(self._disk, self.folder, self.offsets)

    def write(self, table: ProducerStateTable) -> None:
        """Write a snapshot at the table's end, unless there is one. Raises `OSError`."""
        offset = table.end_offset
        if offset in self.offsets[-1:]:
            return
        assert not self.offsets or self.offsets[-1] < offset, "of a part of the log that is gone"
        replace(self._disk, self._path(offset), encode_snapshot(table.entries))
        insort(self.offsets, offset)

    def newest(self, end_offset: int) -> tuple[int, dict[int, ProducerEntry]]:
        """Return the newest usable snapshot at or before `end_offset`; (-1, {}) without one.

        Removes unusable ones. Raises `OSError`.
        """
        for offset in reversed(self.offsets[: bisect_right(self.offsets, end_offset)]):
            data = read_if_exists(self._disk, self._path(offset))
            try:
                return offset, decode_snapshot(data or b"")
            except MalformedSnapshot:
                self._remove(offset)
        return -1, {}

    def remove_beyond(self, offset: int) -> None:
        """Remove, durably, the snapshots of a part of the log that no longer exists.

        A power failure must not restore one: by then the log may have reached its offset again,
        with other producers. Raises `OSError`.
        """
        removed = self.offsets[bisect_right(self.offsets, offset) :]
        for beyond in removed:
            self._remove(beyond)
        if removed:
            self._disk.sync_dir(self.folder)

    def remove_before(self, offset: int) -> None:
        """Remove snapshots that the first segment, which begins at `offset`, does not need.

        Raises `OSError`.
        """
        for before in [snapshot for snapshot in self.offsets if snapshot < offset]:
            self._remove(before)

    def remove_at(self, offset: int) -> None:
        """Remove the snapshot of a segment that was merged into the one before it.

        Raises `OSError`.
        """
        # The newest snapshot stays: a start replays the log from there.
        if offset in self.offsets[:-1]:
            self._remove(offset)

    def prune(self, bases: Collection[int]) -> None:
        """Remove all snapshots but the newest and those at a segment's base.

        Raises `OSError`.
        """
        for offset in self.offsets[:-1]:
            if offset not in bases:
                self._remove(offset)

    def _remove(self, offset: int) -> None:
        remove_if_exists(self._disk, self._path(offset))
        self.offsets = [snapshot for snapshot in self.offsets if snapshot != offset]

    def _path(self, offset: int) -> Path:
        return self.folder / file_name(offset, SNAPSHOT)
