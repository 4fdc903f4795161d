"""A segment's sparse indexes: offset to position, and timestamp to offset.

Files, big-endian; offsets are relative to the segment's base:

    .index      4 last offset of a batch   4 that batch's byte position
    .timeindex  8 greatest timestamp yet   4 last offset of the earliest batch that has it

In memory both are arrays. Entries are written to the files later, in runs (`IndexKeeper`), and are
not synced: the files are only hints, which are compared with the log when they are loaded.

Source: `OffsetIndex` and `TimeIndex` of `org.apache.kafka.storage.internals.log`.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from contextlib import closing
from itertools import chain
from operator import le, lt
from pathlib import Path

from lakelog.runtime.api import Disk
from lakelog.storage.files import INDEX, TIME_INDEX, file_name, read_if_exists

ENTRY_SIZE = 8
TIME_ENTRY_SIZE = 12
_SWAP = sys.byteorder == "little"


class SegmentIndex:
    """Both indexes of one segment. `written` and `written_times` count the entries on disk."""

    __slots__ = (
        "offsets",
        "positions",
        "time_offsets",
        "times",
        "trusted",
        "written",
        "written_times",
    )

    def __init__(self) -> None:
        self.offsets = array("i")
        self.positions = array("i")
        self.times = array("q")
        self.time_offsets = array("i")
        self.trusted = True
        """False for entries from a file that have not been compared with the log."""
        self.written = 0
        self.written_times = 0

    def entries_left(self, bytes_max: int) -> int:
        """Return how many entries still fit, if each of the two files may take `bytes_max`."""
        return min(
            bytes_max // ENTRY_SIZE - len(self.offsets),
            bytes_max // TIME_ENTRY_SIZE - 1 - len(self.times),
        )

    def add(self, offset: int, position: int) -> None:
        """Append an entry; `offset` is relative. Both numbers have to rise from entry to entry.

        The position is in bytes.
        """
        self.offsets.append(offset)
        self.positions.append(position)

    def add_time(self, timestamp: int, offset: int) -> None:
        """Append an entry, unless `timestamp` (ms) is not above that of the last entry."""
        times = self.times
        if timestamp >= 0 and (not times or timestamp > times[-1]):
            times.append(timestamp)
            self.time_offsets.append(offset)

    def floor(self, offset: int) -> int:
        """Return the last entry at or before a relative offset; -1 when there is none.

        Return its number, not its offset.
        """
        return bisect_right(self.offsets, offset) - 1

    @property
    def last_time_position(self) -> int:
        """A position from which a scan of headers meets the batch of the last time entry."""
        floor = self.floor(self.time_offsets[-1]) if self.times else -1
        return self.positions[floor] if floor >= 0 else 0

    def floor_position(self, position: int) -> int:
        """Return the last entry at or before a byte position; -1 when there is none."""
        return bisect_right(self.positions, position) - 1

    def floor_time(self, timestamp: int) -> int:
        """Return the last entry with a time below `timestamp` (ms); -1 when there is none."""
        return bisect_left(self.times, timestamp) - 1

    def truncate(self, offset: int) -> None:
        """Drop entries for relative offsets at or above `offset`."""
        assert len(self.offsets) == len(self.positions)
        assert len(self.times) == len(self.time_offsets)
        keep = bisect_left(self.offsets, offset)
        del self.offsets[keep:], self.positions[keep:]
        keep_times = bisect_left(self.time_offsets, offset)
        del self.times[keep_times:], self.time_offsets[keep_times:]
        self.written = min(self.written, keep)
        self.written_times = min(self.written_times, keep_times)

    def encode_offsets(self, start: int) -> bytes:
        """Return the entries of `.index` from number `start` on, as its file has them."""
        pairs = zip(self.offsets[start:], self.positions[start:], strict=True)
        return struct.pack(f">{2 * (len(self.offsets) - start)}i", *chain.from_iterable(pairs))

    def encode_times(self, start: int) -> bytes:
        """Return the entries of `.timeindex` from number `start` on, as its file has them."""
        pairs = zip(self.times[start:], self.time_offsets[start:], strict=True)
        return struct.pack(">" + "qi" * (len(self.times) - start), *chain.from_iterable(pairs))

    @classmethod
    def decode(cls, offsets: bytes, times: bytes) -> SegmentIndex:
        """Return the index in the two files' contents, without partial entries at their ends.

        Entries of `.index` have 8 bytes, of `.timeindex` 12, as in Kafka.
        """
        index = cls()
        pairs = _numbers(offsets, ENTRY_SIZE)
        index.offsets, index.positions = pairs[0::2], pairs[1::2]
        triples = _numbers(times, TIME_ENTRY_SIZE)
        halves = array("i", bytes(len(triples) // 3 * 8))
        halves[_SWAP::2], halves[not _SWAP :: 2] = triples[0::3], triples[1::3]
        index.times.frombytes(halves.tobytes())
        index.time_offsets = triples[2::3]
        index.trusted = False
        index.written, index.written_times = len(index.offsets), len(index.times)
        return index

    def is_ordered(self, size: int) -> bool:
        """Return whether this can be an index of a segment of `size` bytes."""
        return (
            _rises(self.offsets)
            and _rises(self.positions)
            and _rises(self.times)
            and all(map(le, self.time_offsets, self.time_offsets[1:]))
            and (not self.offsets or (self.offsets[0] >= 0 and self.positions[0] > 0))
            and (not self.offsets or self.positions[-1] < size)
            and (not self.times or (self.times[0] >= 0 and self.time_offsets[0] >= 0))
        )


def _rises(numbers: array[int]) -> bool:
    return all(map(lt, numbers, numbers[1:]))


def _numbers(data: bytes, entry_size: int) -> array[int]:
    """The 4-byte numbers of all whole entries."""
    numbers = array("i")
    numbers.frombytes(data[: len(data) // entry_size * entry_size])
    if _SWAP:
        numbers.byteswap()
    return numbers


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
        with closing(file):
            entries = file.size() // entry_size
            return file.read_at((entries - 1) * entry_size, entry_size) if entries else b""

    def _write(self, suffix: str, position: int, data: bytes) -> None:
        with closing(self._disk.open(self.path(suffix), create=True)) as file:
            file.write_at(position, data)

    def _truncate(self, suffix: str, size: int) -> None:
        with closing(self._disk.open(self.path(suffix), create=True)) as file:
            if file.size() != size:  # to cut off nothing would cost a transaction of a journal
                file.truncate(size)


class _UnwrittenFiles(IndexFiles):
    """Index files that are only read."""

    __slots__ = ()

    def append(self, index: SegmentIndex) -> None:
        pass

    def cut(self, index: SegmentIndex) -> None:
        pass
