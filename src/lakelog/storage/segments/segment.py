"""One segment: appending batches, finding them, cutting them off.

Source: `org.apache.kafka.storage.internals.log.LogSegment`.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path

from lakelog.records.batch import LENGTH_OVERHEAD, HeaderFields
from lakelog.runtime.api import Buffer, File
from lakelog.storage.errors import CorruptLog
from lakelog.storage.files import remove_if_exists, write_aside
from lakelog.storage.indexes.txn_index import AbortedTransaction, TxnIndex, encode_aborted
from lakelog.storage.names import LOG, TXN_INDEX
from lakelog.storage.segments.checks import Checks
from lakelog.storage.segments.handles import Handle
from lakelog.storage.segments.indexed_segment import LAST_BYTES_MAX, IndexedSegment
from lakelog.storage.segments.scan import SPAN, scan_headers

READ_SIZE = 2048
"""Bytes read at a time in a search for a batch header."""
_LENGTH_MIN = 49
_SPAN_SIZE = SPAN.size
_ENDS_TELL_MAX = 32 * 1024
"""A range up to this size is copied to be sent; the copy finds out what is not resident."""


class Segment(IndexedSegment):
    """The batches from `base_offset` on. `next_offset` follows the last record.

    Positions are bytes of the `.log` file. Whatever reads raises `OSError`, and `CorruptLog` for
    bytes that cannot be batches of this segment.
    """

    __slots__ = ()

    # Appending

    def append(self, batch: Buffer, last_offset: int, max_timestamp: int) -> None:
        """Write one whole batch at the end. After an `OSError` nothing has changed."""
        position, size = self.size, len(batch)
        self._write(batch)
        self.note(position, size, last_offset, max_timestamp)
        self.size = position + size
        self.next_offset = last_offset + 1

    def append_run(self, batches: Sequence[Buffer], headers: Sequence[HeaderFields]) -> None:
        """Append batches with one write; as `append`. Their offsets follow from the headers."""
        self._write(*batches)
        self.note_run(batches, headers)

    def _write(self, *batches: Buffer) -> None:
        """Write at the end. The index is loaded first: if that fails, nothing has been written."""
        if self.loaded_index is None:
            _ = self.index
        handle = self.handle
        if handle is None or self.torn:
            handle = self._open_whole()
        handle.used = True
        try:
            handle.file.write_at(self.size, *batches)
        except OSError:
            self.torn = True
            self._cut_back(handle.file)
            raise

    def _open_whole(self) -> Handle:
        """Return the open file, after cutting off what a failed write left beyond `size`."""
        handle = self.open()
        if self.torn:
            handle.file.truncate(self.size)
            self.torn = False
        return handle

    def _cut_back(self, file: File) -> None:
        try:
            file.truncate(self.size)
        except OSError:
            return
        self.torn = False

    def is_due(self, timestamp: int, now_ms: int, roll_ms: int) -> bool:
        """Return whether `timestamp` is more than `roll_ms` after that of the first batch.

        All times are in milliseconds. The clock decides if there are no timestamps or the first one
        is in the future: otherwise no record might ever be late enough (KIP-937).
        """
        if self.first_timestamp < 0:
            for _, header in scan_headers(self.open().file, 0, self.size):
                self.first_timestamp = header.max_timestamp
                break
        if not 0 <= self.first_timestamp <= now_ms:
            return self.size > 0 and now_ms - self.created_ms > roll_ms
        self.roll_after = self.first_timestamp + roll_ms
        return timestamp > self.roll_after

    # Finding

    def position_before_time(self, timestamp: int) -> int:
        """Return the position of a batch before which every timestamp is below `timestamp`.

        `has_time` must be true of the index entry that this uses.
        """
        entry = self.index.floor_time(timestamp)
        if entry < 0:
            return 0
        return self.position_of(self.base_offset + self.index.time_offsets[entry])

    def has_time(self, entry: int) -> bool:
        """Return whether the batch named by an entry of the time index has its timestamp."""
        index = self.index
        offset = self.base_offset + index.time_offsets[entry]
        batches = scan_headers(self.open().file, self.position_of(offset), self.size)
        _, header = next(batches, (0, None))
        return header is not None and (
            (header.last_offset, header.newest_timestamp) == (offset, index.times[entry])
        )

    def position_of(self, offset: int) -> int:
        """Return where the first batch that ends at or after `offset` begins, else `size`."""
        index = self.loaded_index if self.loaded_index is not None else self.index
        entry = index.floor(offset - self.base_offset)
        if not index.trusted and not self.is_true(index, entry):
            self.rebuild_index("it disagrees with the log")
            return self.position_of(offset)
        position = index.positions[entry] if entry >= 0 else 0
        file, size = self.open().file, self.size
        window, start = b"", position
        while position < size:
            at = position - start
            if at + SPAN.size > len(window):
                window, start, at = file.read_at(position, READ_SIZE), position, 0
            base, length, delta = self._span(window, at, position)
            if base + delta >= offset:
                return position
            position += length + LENGTH_OVERHEAD
        return size

    def search_range(self, offset: int) -> tuple[int, int]:
        """Return the range that `position_of` may read, if the index is right.

        It includes the batches from which a check of the result has to begin (`entry_before`).
        """
        positions = self.index.positions
        entry = self.index.floor(offset - self.base_offset)
        following = positions[entry + 1] if entry + 1 < len(positions) else self.size
        first = entry - 1 if self.unchecked and entry > 0 else entry
        return positions[first] if first >= 0 else 0, min(following + READ_SIZE, self.size)

    def whole_batches(self, position: int, end: int, max_bytes: int, first: int | None) -> int:
        """Return the bytes of whole batches from `position`: at most `max_bytes`, or one batch.

        They end at or before `end`, and may fall short of `max_bytes` by an index interval and a
        batch. `first` is the size of the batch at `position` if it is known.
        """
        if first is not None and first >= max_bytes:
            return first
        index = self.loaded_index if self.loaded_index is not None else self.index
        entry = index.floor_position(min(position + max_bytes, end))
        if not index.trusted and not self.is_true(index, entry):
            self.rebuild_index("it disagrees with the log")
            return self.whole_batches(position, end, max_bytes, first)
        if entry >= 0 and index.positions[entry] > position:
            return index.positions[entry] - position
        file, at = self.open().file, position + (first or 0)
        while at < end:
            _, length, _ = self._span(file.read_at(at, SPAN.size), 0, at)
            following = at + length + LENGTH_OVERHEAD
            if following - position > max_bytes and at > position:
                break
            at = following
            if at - position >= max_bytes:
                break
        return at - position

    def last_time_position(self) -> int:
        """Return where the batch of the last time entry begins, or a batch before it."""
        position = self.last_entry_position()
        return self.index.last_time_position if position is None else position

    def last_entry_position(self) -> int | None:
        """Return the same without loading the indexes; `None` if only they can answer.

        They are needed if the files disagree with the log or end far before it.
        """
        entry, time = self._files.read_last()
        if entry is None or time is None or entry[0] > time[1] or not self._starts(*entry):
            return None
        return entry[1] if self.size - entry[1] <= LAST_BYTES_MAX else None

    def _starts(self, offset: int, position: int) -> bool:
        """Return whether a batch that ends at a relative offset begins at `position`."""
        if not 0 <= position < self.size:
            return False
        base, _, delta = self._span(self.open().file.read_at(position, SPAN.size), 0, position)
        return base + delta == self.base_offset + offset

    def entry_before(self, position: int) -> int:
        """Return the position of the last index entry before `position`; 0 without one."""
        index = self.index
        entry = index.floor_position(position - 1)
        if not index.trusted and not self.is_true(index, entry):
            self.rebuild_index("it disagrees with the log")
            return self.entry_before(position)
        return index.positions[entry] if entry >= 0 else 0

    def entry_for(self, offset: int) -> int:
        """Return the position of the index entry where a search for `offset` starts, else 0."""
        entry = self.index.floor(offset - self.base_offset)
        return self.index.positions[entry] if entry >= 0 else 0

    def too_short(self, offset: int) -> CorruptLog:
        """Return the error for a segment whose file ends before an offset that it should hold."""
        reason = f"the file ends before offset {offset}, the segment at {self.next_offset}"
        return CorruptLog(self.path(LOG), self.size, reason)

    def batch_at(self, position: int) -> tuple[int, int] | None:
        """Return base offset and size of the batch at `position`.

        `None` if there is no header, or if reading it would wait for the device.
        """
        handle = self.handle or self.open()
        head = self._handles.disk.read_resident(handle.file, position, _SPAN_SIZE)
        if head is None:
            return None
        base, length, _ = SPAN.unpack(head)
        return None if length < _LENGTH_MIN else (base, length + LENGTH_OVERHEAD)

    def is_resident(self, position: int, size: int, *, is_next_read: bool) -> bool:
        """Guess whether the page cache holds a range, from its middle and the byte after it.

        The ends of a range are often resident because of other reads, so they prove less. With
        `is_next_read` the header after the range was just read and is resident. Without it, that
        byte is asked for: the read may also have failed because the file system cannot report what
        is resident.
        """
        if is_next_read and size <= _ENDS_TELL_MAX:
            return True
        disk, file = self._handles.disk, (self.handle or self.open()).file
        return disk.is_resident(file, position + size // 2, 1) and (
            is_next_read or disk.is_resident(file, position + size, 1)
        )

    def _span(self, window: Buffer, at: int, position: int) -> tuple[int, int, int]:
        try:
            base, length, delta = SPAN.unpack_from(window, at)
        except struct.error:
            raise CorruptLog(self.path(LOG), position, "a batch header is cut off") from None
        if length < _LENGTH_MIN:
            reason = f"a batch length of {length} is impossible"
            raise CorruptLog(self.path(LOG), position, reason)
        return base, length, delta

    def end_of_reads(self, position: int) -> int:
        """Return an offset that no batch before `position` reaches, close to the lowest such."""
        index = self.index
        entry = bisect_left(index.positions, position)
        if entry == len(index.positions):
            return self.next_offset
        if not index.trusted and not self.is_true(index, entry):
            self.rebuild_index("it disagrees with the log")
            return self.end_of_reads(position)
        return self.base_offset + index.offsets[entry]

    # Aborted transactions

    def aborted(self) -> list[AbortedTransaction] | None:
        """Return the transactions whose abort markers are here; `None` for a damaged index."""
        index = self.txn_index
        if index is None:
            return []
        if index.entries is None:
            index.read(self.disk, self.path(TXN_INDEX), self.base_offset, self.next_offset)
        return index.entries

    def aborted_checksum(self) -> int:
        """Return the CRC-32C of its transaction index, which it must have."""
        assert self.txn_index is not None
        return self.txn_index.checksum(self.disk, self.path(TXN_INDEX))

    def write_aborted(self, entry: AbortedTransaction) -> None:
        """Write an entry before its marker is appended; then `keep_aborted` or `cut_aborted`."""
        if self.txn_index is None:
            self.txn_index = TxnIndex([])
        self.txn_index.write(self.disk, self.path(TXN_INDEX), entry)

    def keep_aborted(self, entry: AbortedTransaction) -> None:
        """Keep the entry: its marker has been appended."""
        assert self.txn_index is not None
        self.txn_index.keep(entry)

    def cut_aborted(self) -> None:
        """Cut off the entry of a marker that could not be appended."""
        if self.txn_index is not None:
            self.txn_index.cut(self.disk, self.path(TXN_INDEX))

    def replace_aborted(self, entries: list[AbortedTransaction]) -> None:
        """Replace the transaction index; a segment without entries has no file."""
        if entries:
            aside = write_aside(self.disk, self.path(TXN_INDEX), encode_aborted(entries))
            self.adopt_aborted(entries, aside)
        elif self.txn_index is not None:
            self.adopt_aborted(entries, None)

    def adopt_aborted(self, entries: list[AbortedTransaction], aside: Path | None) -> None:
        """Replace the transaction index by entries that were written to the file `aside`."""
        if aside is None:
            remove_if_exists(self.disk, self.path(TXN_INDEX))
            self.txn_index = None
        else:
            self.disk.rename(aside, self.path(TXN_INDEX))
            self.txn_index = TxnIndex(entries)

    # Older than the process

    def find(self, size: int) -> None:
        """Take note of a file of `size` bytes that is older than the process."""
        self.size = self.unchecked = size
        self.checks = Checks() if size else None

    def note_checked(self) -> None:
        """Take note that all of the file has been checked."""
        self.unchecked, self.checks = 0, None

    # Ending

    def cut_at(self, position: int) -> None:
        """End the file at `position`, up to which every batch has been noted."""
        self.shorten(position)
        self.write_index()

    def shorten(self, position: int) -> None:
        """Cut the file at `position`, durably.

        Otherwise a power failure could restore old batches behind new ones of the same offsets.
        """
        assert 0 <= position <= self.size
        file = self.open().file
        file.truncate(position)
        file.sync()
        self.size = position
        if position < self.unchecked:
            self.find(position)

    def end_before(self, offset: int) -> int:
        """Return where the log ends if the batch that holds `offset` is cut off.

        That is below `offset` if the batch begins before it.
        """
        position = self.position_of(offset)
        if position == self.size:
            return offset
        head = self.open().file.read_at(position, SPAN.size)
        return min(offset, self._span(head, 0, position)[0])

    def truncate(self, end: int) -> None:
        """Cut off everything from offset `end` on, which must not lie within a batch."""
        position = self.position_of(end)
        self.shorten(position)
        self.torn = self.sealed = False
        if not position:
            self.first_timestamp = self.roll_after = -1
        index = self.index
        index.truncate(end - self.base_offset)
        self._files.cut(index)
        if not self._resume(index):
            self.rebuild_index("it disagrees with the log")
        self.next_offset = end

    def finish(self) -> None:
        """Write the entries that the index files lack, before the log is closed."""
        if self.loaded_index is not None:
            self.seal()
