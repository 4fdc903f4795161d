"""Reading and writing the two index files of a segment. Nothing here is synced."""

from __future__ import annotations

import struct
from pathlib import Path

from lakelog.runtime.api import Disk
from lakelog.storage.files import read_if_exists
from lakelog.storage.indexes.segment_index import ENTRY_SIZE, TIME_ENTRY_SIZE, SegmentIndex
from lakelog.storage.names import INDEX, TIME_INDEX, file_name


class IndexFiles:
    """The `.index` and `.timeindex` of the segment at `base_offset`; a missing file is empty."""

    __slots__ = ("_disk", "_folder", "base_offset")

    def __init__(self, disk: Disk, folder: Path, base_offset: int) -> None:
        self._disk = disk
        self._folder = folder
        self.base_offset = base_offset

    def read(self) -> SegmentIndex:
        """Return the entries of both files, not compared with the log. Raises `OSError`."""
        offsets = read_if_exists(self._disk, self.path(INDEX))
        times = read_if_exists(self._disk, self.path(TIME_INDEX))
        return SegmentIndex.decode(offsets or b"", times or b"")

    def read_last(self) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
        """Return the last (relative offset, position) and the last (timestamp, relative offset).

        `None` for an empty file. Raises `OSError`.
        """
        offset = self._last(INDEX, ENTRY_SIZE)
        time = self._last(TIME_INDEX, TIME_ENTRY_SIZE)
        return (
            struct.unpack(">ii", offset) if offset else None,
            struct.unpack(">qi", time) if time else None,
        )

    def append(self, index: SegmentIndex) -> None:
        """Write the entries that the files lack. Raises `OSError`."""
        assert index.written <= len(index.offsets)
        assert index.written_times <= len(index.times)
        if len(index.offsets) > index.written:
            self._write(INDEX, index.written * ENTRY_SIZE, index.encode_offsets(index.written))
            index.written = len(index.offsets)
        if len(index.times) > index.written_times:
            times = index.encode_times(index.written_times)
            self._write(TIME_INDEX, index.written_times * TIME_ENTRY_SIZE, times)
            index.written_times = len(index.times)

    def cut(self, index: SegmentIndex) -> None:
        """Create the files, or cut them to the entries that `index` counts as written.

        Raises `OSError`.
        """
        self._truncate(INDEX, index.written * ENTRY_SIZE)
        self._truncate(TIME_INDEX, index.written_times * TIME_ENTRY_SIZE)

    def unwritten(self) -> IndexFiles:
        """Return the same files for a reader that keeps new entries in memory."""
        return _UnwrittenFiles(self._disk, self._folder, self.base_offset)

    def path(self, suffix: str) -> Path:
        """Return the path of the segment's file with this suffix."""
        return self._folder / file_name(self.base_offset, suffix)

    def _last(self, suffix: str, entry_size: int) -> bytes:
        try:
            file = self._disk.open(self.path(suffix))
        except FileNotFoundError:
            return b""
        try:
            entries = file.size() // entry_size
            return file.read_at((entries - 1) * entry_size, entry_size) if entries else b""
        finally:
            file.close()

    def _write(self, suffix: str, position: int, data: bytes) -> None:
        file = self._disk.open(self.path(suffix), create=True)
        try:
            file.write_at(position, data)
        finally:
            file.close()

    def _truncate(self, suffix: str, size: int) -> None:
        file = self._disk.open(self.path(suffix), create=True)
        try:
            if file.size() != size:  # to cut off nothing would cost a transaction of a journal
                file.truncate(size)
        finally:
            file.close()


class _UnwrittenFiles(IndexFiles):
    """Index files that are only read."""

    __slots__ = ()

    def append(self, index: SegmentIndex) -> None:
        pass

    def cut(self, index: SegmentIndex) -> None:
        pass
