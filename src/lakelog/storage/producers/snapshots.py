"""The producer snapshots of one log: one at each segment's base, and the newest.

A snapshot saves replaying the log before its offset. It is believed only if its checksum is right
and the log reaches its offset; otherwise an older one or the log itself is used.
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
    """`offsets` are those of the existing files, rising."""

    __slots__ = ("_disk", "folder", "offsets")

    def __init__(self, disk: Disk, folder: Path, offsets: Iterable[int] = ()) -> None:
        self._disk = disk
        self.folder = folder
        self.offsets = sorted(offsets)

    def copy(self) -> ProducerSnapshots:
        """Return what a thread may use while the owner goes on writing and removing files."""
        return ProducerSnapshots(self._disk, self.folder, self.offsets)

    def write(self, table: ProducerStateTable) -> None:
        """A snapshot at the table's end, unless there is one. It is not synced."""
        offset = table.end_offset
        if offset in self.offsets[-1:]:
            return
        replace(self._disk, self._path(offset), encode_snapshot(table.entries))
        insort(self.offsets, offset)

    def newest(self, end_offset: int) -> tuple[int, dict[int, ProducerEntry]]:
        """The newest usable snapshot at or before `end_offset`; (-1, {}) when there is none."""
        for offset in reversed(self.offsets[: bisect_right(self.offsets, end_offset)]):
            data = read_if_exists(self._disk, self._path(offset))
            try:
                return offset, decode_snapshot(data or b"")
            except MalformedSnapshot:
                self._remove(offset)
        return -1, {}

    def remove_beyond(self, offset: int) -> None:
        """Removes durably those of a part of the log that no longer exists.

        A power failure must not bring one back: the log may have reached its offset again by then,
        with other producers.
        """
        removed = self.offsets[bisect_right(self.offsets, offset) :]
        for beyond in removed:
            self._remove(beyond)
        if removed:
            self._disk.sync_dir(self.folder)

    def remove_before(self, offset: int) -> None:
        """Removes those that the first segment, which begins at `offset`, does not need."""
        for before in [known for known in self.offsets if known < offset]:
            self._remove(before)

    def remove_at(self, offset: int) -> None:
        """Removes the one of a segment that has been merged into the one before it."""
        if offset in self.offsets[:-1]:
            self._remove(offset)

    def prune(self, bases: Collection[int]) -> None:
        """Keeps the newest and those at a segment's base."""
        for offset in self.offsets[:-1]:
            if offset not in bases:
                self._remove(offset)

    def _remove(self, offset: int) -> None:
        remove_if_exists(self._disk, self._path(offset))
        self.offsets = [known for known in self.offsets if known != offset]

    def _path(self, offset: int) -> Path:
        return self.folder / file_name(offset, SNAPSHOT)
