"""One segment: a file of batches and its indexes.

Whatever is in memory about the file's content is true: it comes from appends, from a scan, or from
index files that were compared with the log. An index that disagrees with the log is built again.
Index entries are written in runs, and at the latest when the segment is flushed, closed or left.

Source: `org.apache.kafka.storage.internals.log.LogSegment`.
"""

from __future__ import annotations

import struct
from pathlib import Path

from lakelog.records.batch import BatchHeader
from lakelog.runtime.api import Buffer, Disk, File
from lakelog.storage.errors import CorruptLog
from lakelog.storage.handles import Handle, HandleCache
from lakelog.storage.index import ENTRY_SIZE, TIME_ENTRY_SIZE, SegmentIndex
from lakelog.storage.index_files import IndexFiles
from lakelog.storage.names import LOG, file_name
from lakelog.storage.scan import scan_headers

_SPAN = struct.Struct(">qi11xi")
"""Base offset, batch length and last offset delta of a batch header."""
_WINDOW = 2048
_INDEX_RUN = 64
"""Index entries kept in memory before they are written."""
_LENGTH_MIN = 49


class Segment:
    """The batches from `base_offset` on. `next_offset` follows the last record."""

    __slots__ = (
        "_handles",
        "_index",
        "_interval",
        "base_offset",
        "bytes_since_entry",
        "created_ms",
        "first_timestamp",
        "folder",
        "handle",
        "jitter_ms",
        "max_timestamp",
        "max_timestamp_offset",
        "next_offset",
        "sealed",
        "size",
        "torn",
    )

    def __init__(
        self,
        handles: HandleCache,
        folder: Path,
        base_offset: int,
        *,
        interval: int,
        created_ms: int,
        jitter_ms: int = 0,
    ) -> None:
        self._handles = handles
        self._index: SegmentIndex | None = None
        self._interval = interval
        self.folder = folder
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size = 0
        self.handle: Handle | None = None
        self.bytes_since_entry = 0
        self.created_ms = created_ms
        self.jitter_ms = jitter_ms
        self.first_timestamp = -1
        """Greatest timestamp of the first batch; -1 when it has not been read."""
        self.max_timestamp = -1
        self.max_timestamp_offset = -1
        """Last offset of the earliest batch with `max_timestamp`."""
        self.sealed = False
        """Whether a later segment has taken over."""
        self.torn = False
        """Whether a failed write may have left bytes beyond `size`."""

    @classmethod
    def create(
        cls,
        handles: HandleCache,
        folder: Path,
        base_offset: int,
        *,
        interval: int,
        created_ms: int,
        jitter_ms: int = 0,
    ) -> Segment:
        """A new, empty segment with its files; what stood there under these names is cut off."""
        segment = cls(
            handles,
            folder,
            base_offset,
            interval=interval,
            created_ms=created_ms,
            jitter_ms=jitter_ms,
        )
        segment._index = SegmentIndex()
        segment._files.cut(segment._index)
        file = handles.disk.open(segment.path(LOG), create=True)
        file.truncate(0)
        file.close()
        return segment

    @property
    def disk(self) -> Disk:
        return self._handles.disk

    @property
    def _files(self) -> IndexFiles:
        return IndexFiles(self.disk, self.folder, self.base_offset)

    def path(self, suffix: str) -> Path:
        return self.folder / file_name(self.base_offset, suffix)

    def open(self) -> Handle:
        handle = self.handle
        if handle is None:
            handle = self._handles.open(self, self.path(LOG))
        handle.used = True
        return handle

    # Appending

    def append(self, batch: Buffer, last_offset: int, max_timestamp: int) -> None:
        """Writes one whole batch at the end. After an `OSError` the segment is what it was."""
        position = self.size
        file = self.open().file
        if self.torn:
            file.truncate(position)
            self.torn = False
        try:
            file.write_at(position, batch)
        except OSError:
            self.torn = True
            self._cut_back(file)
            raise
        size = len(batch)
        self.note(position, size, last_offset, max_timestamp)
        self.size = position + size
        self.next_offset = last_offset + 1

    def _cut_back(self, file: File) -> None:
        try:
            file.truncate(self.size)
        except OSError:
            return
        self.torn = False

    def note(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        """Takes a batch into the indexes, as every one of them in turn has to be."""
        index = self._index if self._index is not None else self.index
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if position == 0:
            self.first_timestamp = max_timestamp
        if self.bytes_since_entry > self._interval:
            index.add(last_offset - self.base_offset, position)
            index.add_time(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
            self.bytes_since_entry = 0
            if len(index.offsets) - index.written >= _INDEX_RUN:
                self.write_index()
        self.bytes_since_entry += size

    def is_full(self, index_bytes: int) -> bool:
        """Whether an index of at most `index_bytes` has no room left."""
        index = self._index
        if index is None:
            return False
        return (
            len(index.offsets) >= index_bytes // ENTRY_SIZE
            or len(index.times) >= index_bytes // TIME_ENTRY_SIZE - 1
        )

    def age_ms(self, timestamp: int, now_ms: int) -> int:
        """How much later than the first batch `timestamp` is; without timestamps, by the clock."""
        if self.first_timestamp < 0 and self.size:
            for _, header in scan_headers(self.open().file, 0, self.size):
                self.first_timestamp = header.max_timestamp
                break
        if self.first_timestamp >= 0:
            return timestamp - self.first_timestamp
        return now_ms - self.created_ms

    def greatest_timestamp(self) -> int:
        """Of all its records; -1 when none has one."""
        _ = self.index
        return self.max_timestamp

    # Finding

    def position_before_time(self, timestamp: int) -> int:
        """A batch's position before which every timestamp is below `timestamp`."""
        index = self.index
        entry = index.floor_time(timestamp)
        if entry < 0:
            return 0
        time, offset = index.times[entry], self.base_offset + index.time_offsets[entry]
        position = self.position_of(offset)
        for _, header in scan_headers(self.open().file, position, self.size):
            if header.last_offset == offset and header.max_timestamp == time:
                return position
            break
        self.rebuild_index()
        return self.position_before_time(timestamp)

    def position_of(self, offset: int) -> int:
        """Where the first batch begins that ends at or after `offset`; `size` when none does."""
        index = self._index if self._index is not None else self.index
        entry = index.floor(offset - self.base_offset)
        if not index.trusted and not self._is_true(index, entry):
            self.rebuild_index()
            return self.position_of(offset)
        position = index.positions[entry] if entry >= 0 else 0
        file, size = self.open().file, self.size
        window, start = b"", position
        while position < size:
            at = position - start
            if at + _SPAN.size > len(window):
                window, start, at = file.read_at(position, _WINDOW), position, 0
            base, length, delta = self._span(window, at, position)
            if base + delta >= offset:
                return position
            position += length + 12
        return size

    def whole_batches(self, position: int, end: int, max_bytes: int) -> int:
        """Bytes of whole batches from `position`: at most `max_bytes` up to `end`, or one batch.

        May fall short of `max_bytes` by an index interval and a batch.
        """
        index = self._index if self._index is not None else self.index
        entry = index.floor_position(min(position + max_bytes, end))
        if not index.trusted and not self._is_true(index, entry):
            self.rebuild_index()
            return self.whole_batches(position, end, max_bytes)
        if entry >= 0 and index.positions[entry] > position:
            return index.positions[entry] - position
        file, at = self.open().file, position
        while at < end:
            _, length, _ = self._span(file.read_at(at, _SPAN.size), 0, at)
            following = at + length + 12
            if following - position > max_bytes and at > position:
                break
            at = following
            if at - position >= max_bytes:
                break
        return at - position

    def _span(self, window: bytes, at: int, position: int) -> tuple[int, int, int]:
        try:
            base, length, delta = _SPAN.unpack_from(window, at)
        except struct.error:
            raise CorruptLog(self.path(LOG), position, "a batch header is cut off") from None
        if length < _LENGTH_MIN:
            reason = f"a batch length of {length} is impossible"
            raise CorruptLog(self.path(LOG), position, reason)
        return base, length, delta

    # Indexes

    @property
    def index(self) -> SegmentIndex:
        """Both indexes, loaded and compared with the log on first use."""
        index = self._index
        if index is None:
            index = self._index = self._files.read()
            if not index.is_ordered(self.size) or not self._resume(index):
                self.rebuild_index()
                index = self._index
        return index

    def rebuild_index(self) -> None:
        """Makes both indexes from the log, in memory and on disk."""
        self.begin_rebuild()
        for position, header in scan_headers(self.open().file, 0, self.size):
            self.note_header(position, header)
        self.end_rebuild()

    def begin_rebuild(self) -> None:
        """Empties the indexes; every batch must then be noted again, in order."""
        self._index = SegmentIndex()
        self._files.cut(self._index)
        self.max_timestamp = self.max_timestamp_offset = -1
        self.bytes_since_entry = 0
        self.next_offset = self.base_offset

    def end_rebuild(self) -> None:
        if self.sealed:
            self.seal()
        else:
            self.write_index()

    def cut_at(self, position: int) -> None:
        """Ends the file at `position`, up to which every batch has been noted."""
        self.open().file.truncate(position)
        self.size = position
        self.write_index()

    def load_tail(self) -> None:
        """Finds the end of a cleanly closed segment from the last index entries on."""
        entry, time = self._files.read_last()
        if time is not None:
            self.max_timestamp, relative = time
            self.max_timestamp_offset = self.base_offset + relative
        offset, position = entry or (0, 0)
        try:
            complete = self._follow(position, self.base_offset + offset if entry else -1)
        except CorruptLog:
            complete = False
        if not complete:
            self.rebuild_index()

    def _follow(self, start: int, last_offset: int) -> bool:
        """Reads on from the last index entry; false if it is wrong or later ones are missing."""
        self.bytes_since_entry = 0
        if not 0 <= start <= self.size:
            return False
        for position, header in scan_headers(self.open().file, start, self.size):
            wrong = position == start and last_offset >= 0 and header.last_offset != last_offset
            if wrong or self.bytes_since_entry > self._interval:
                return False
            self.bytes_since_entry += header.size
            self.next_offset = header.last_offset + 1
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp = header.max_timestamp
                self.max_timestamp_offset = header.last_offset
        return start < self.size or not self.size

    def write_index(self) -> None:
        """Appends the entries that the index files lack. They are not synced."""
        if self._index is not None:
            self._files.append(self._index)

    def _resume(self, index: SegmentIndex) -> bool:
        """Takes up the counts where the last entries end; false if those are not of this log.

        The last time entry tells the greatest timestamp only of the batches up to its own, so the
        scan begins there.
        """
        self.max_timestamp = self.max_timestamp_offset = -1
        self.bytes_since_entry = 0
        last_entry, floor = (index.positions[-1] if index.positions else 0), -1
        if index.times:
            self.max_timestamp = index.times[-1]
            self.max_timestamp_offset = self.base_offset + index.time_offsets[-1]
            floor = index.floor(index.time_offsets[-1])
        if not self._is_true(index, floor) or not self._is_true(index, len(index.offsets) - 1):
            return False
        time_found = not index.times
        start = index.positions[floor] if floor >= 0 else 0
        for position, header in scan_headers(self.open().file, start, self.size):
            if header.last_offset == self.max_timestamp_offset:
                time_found = time_found or header.max_timestamp == self.max_timestamp
            if position >= last_entry:
                self.note_header(position, header)
            elif header.max_timestamp > self.max_timestamp:
                self.max_timestamp = header.max_timestamp
                self.max_timestamp_offset = header.last_offset
        return time_found

    def note_header(self, position: int, header: BatchHeader) -> None:
        """`note` for a batch that is found in the file."""
        self.note(position, header.size, header.last_offset, header.max_timestamp)
        self.next_offset = header.last_offset + 1

    def _is_true(self, index: SegmentIndex, entry: int) -> bool:
        """Whether the batch at an entry's position is the one it names."""
        if entry < 0:
            return True
        window = self.open().file.read_at(index.positions[entry], _SPAN.size)
        if len(window) < _SPAN.size:
            return False
        base, _, delta = _SPAN.unpack(window)
        return bool(base + delta == self.base_offset + index.offsets[entry])

    # Ending

    def seal(self) -> None:
        """Ends the segment's growth: the greatest timestamp gets its entry, all are written."""
        index = self.index
        index.add_time(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
        self.write_index()
        self.sealed = True

    def truncate(self, offset: int) -> int:
        """Cuts off the batch that holds `offset` and all after it; returns where the log now ends.

        That is below `offset` when it lay within a batch.
        """
        position = self.position_of(offset)
        file, end = self.open().file, offset
        if position < self.size:
            end = min(offset, self._span(file.read_at(position, _SPAN.size), 0, position)[0])
        file.truncate(position)
        self.size = position
        self.torn = self.sealed = False
        if not position:
            self.first_timestamp = -1
        index = self.index
        index.truncate(offset - self.base_offset)
        self._files.cut(index)
        if not self._resume(index):
            self.rebuild_index()
        self.next_offset = end
        return end

    def unload(self) -> None:
        """Gives up the descriptor and, once sealed, the indexes."""
        if self.sealed and self._index is not None:
            self.write_index()
            self._index = None
        self._handles.close(self)

    def finish(self) -> None:
        """Writes what the index files lack before the log is closed."""
        if self._index is not None and not self.sealed:
            self.seal()
