"""One segment: its file of batches, appends to it, and searches in it.

Its indexes are kept by `index_keeper`; the transactions that were aborted in it are in `aborted`.

Source: `org.apache.kafka.storage.internals.log.LogSegment`.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from lakelog.base.config.log_config import LogConfig
from lakelog.records.batch import (
    BASE_OFFSET,
    BATCH_LENGTH,
    LAST_OFFSET_DELTA,
    LENGTH_OVERHEAD,
    MAX_TIMESTAMP,
    BatchHeader,
    HeaderFields,
)
from lakelog.runtime.api import Buffer, Disk, File
from lakelog.storage.errors import CorruptLog
from lakelog.storage.files import LOG, TXN_INDEX, file_name, remove_if_exists
from lakelog.storage.segments.checks import Checks
from lakelog.storage.segments.handles import Handle, HandleCache
from lakelog.storage.segments.index_keeper import Batches, IndexKeeper
from lakelog.storage.segments.scan import LAST_BYTES_MAX, SPAN, is_true, scan_headers
from lakelog.storage.segments.segment_index import (
    ENTRY_SIZE,
    TIME_ENTRY_SIZE,
    IndexFiles,
    SegmentIndex,
)
from lakelog.storage.segments.txn_index import TxnIndex

READ_SIZE = 2048
"""Bytes read at a time in a search for a batch header."""
_LENGTH_MIN = 49
_SPAN_SIZE = SPAN.size
_ENDS_TELL_MAX = 32 * 1024
"""Bytes; a range up to this size is copied to be sent, and the copy detects missing pages."""


class Segment:
    """`size` bytes of batches whose offsets begin at `base_offset` and end before `next_offset`.

    Positions and sizes are bytes of the `.log` file. Reading raises `OSError`, and `CorruptLog` for
    bytes that cannot be batches of this segment.
    """

    __slots__ = (
        "_handles",
        "base_offset",
        "checks",
        "created_ms",
        "first_timestamp",
        "folder",
        "handle",
        "indexes",
        "jitter_ms",
        "next_offset",
        "roll_after",
        "sealed",
        "size",
        "torn",
        "txn_index",
        "unchecked",
    )

    def __init__(
        self,
        handles: HandleCache,
        folder: Path,
        base_offset: int,
        config: LogConfig,
        *,
        created_ms: int,
        jitter_ms: int = 0,
    ) -> None:
        self._handles = handles
        self.indexes = IndexKeeper(IndexFiles(handles.disk, folder, base_offset), config)
        self.folder = folder
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size = 0
        self.handle: Handle | None = None
        self.created_ms = created_ms
        self.jitter_ms = jitter_ms
        self.first_timestamp = -1
        """Greatest timestamp (ms) of the first batch; -1 when it has not been read."""
        self.roll_after = -1
        """A batch with a timestamp (ms) above this begins another segment; -1 when not known."""
        self.sealed = False
        """Whether the segment has ended: only the last one of a log has not."""
        self.torn = False
        """Whether a failed write may have left bytes beyond `size`."""
        self.unchecked = 0
        """Bytes before it are older than this process, which has not checked all of them."""
        self.checks: Checks | None = None
        """Which of these bytes it has checked."""
        self.txn_index: TxnIndex | None = None
        """`None` when no transaction was aborted here."""

    def create(self) -> Self:
        """Make the files of a new, empty segment; existing ones are emptied. Raises `OSError`."""
        file = self.disk.open(self.path(LOG), create=True)
        # A crash may have left a file of this name from a roll that failed half-way. Its bytes were
        # never acknowledged, and behind new batches they would look like records.
        file.truncate(0)
        file.close()
        self.indexes.create()
        remove_if_exists(self.disk, self.path(TXN_INDEX))
        return self

    @property
    def disk(self) -> Disk:
        return self._handles.disk

    def path(self, suffix: str) -> Path:
        """Return the path of the segment's file with this suffix."""
        return self.folder / file_name(self.base_offset, suffix)

    def open(self) -> Handle:
        """Return the open file. Raises `OSError`."""
        handle = self.handle
        if handle is None:
            handle = self._handles.open(self, self.path(LOG))
        handle.used = True
        return handle

    # Appending

    def append(self, batch: Buffer, last_offset: int, max_timestamp: int) -> None:
        """Write one whole batch at the end. `max_timestamp` is in milliseconds.

        Raises `OSError`; nothing has changed then.
        """
        # The write comes before any change of state, so a failed append needs no undo.
        indexes, position, size = self._write(batch), self.size, len(batch)
        # As `IndexKeeper.note`, which is not called: every append passes here.
        if max_timestamp > indexes.max_timestamp:
            indexes.max_timestamp = max_timestamp
            indexes.max_timestamp_offset = last_offset
        if position == 0:
            self.first_timestamp = max_timestamp
        if indexes.bytes_since_entry > indexes.interval:
            indexes.add_entry(position, last_offset)
        indexes.bytes_since_entry += size
        self.size = position + size
        self.next_offset = last_offset + 1

    def append_coalesced(self, batches: Sequence[Buffer], headers: Sequence[HeaderFields]) -> None:
        """Append batches with one write, as `append`. Raises as `append`.

        `batches` are their bytes, in any number of pieces. A client's batches follow one another
        and have the base offset 0 in their headers; a leader's may leave gaps.
        """
        indexes = self._write(*batches)
        position, end, greatest = self.size, self.next_offset, indexes.max_timestamp
        if position == 0:
            self.first_timestamp = headers[0][MAX_TIMESTAMP]
        for fields in headers:
            if fields[BASE_OFFSET] > end:
                end = fields[BASE_OFFSET]
            end += fields[LAST_OFFSET_DELTA] + 1
            if fields[MAX_TIMESTAMP] > greatest:
                indexes.max_timestamp = greatest = fields[MAX_TIMESTAMP]
                indexes.max_timestamp_offset = end - 1
            if indexes.bytes_since_entry > indexes.interval:
                indexes.add_entry(position, end - 1)
            size = fields[BATCH_LENGTH] + LENGTH_OVERHEAD
            indexes.bytes_since_entry += size
            position += size
        self.size, self.next_offset = position, end

    def _write(self, *batches: Buffer) -> IndexKeeper:
        """Write at the end, and return the indexes.

        They are loaded first: if that fails, nothing has been written.
        """
        indexes = self.indexes
        if indexes.loaded is None:
            _ = self.index
        handle = self.handle
        if handle is None or self.torn:
            handle = self._open_whole()
        handle.used = True
        try:
            handle.file.write_at(self.size, *batches)
        except OSError:
            self.torn = True
            # A half-written batch behind `size` would be found by the scan of the next start.
            self._cut_back(handle.file)
            raise
        return indexes

    def _open_whole(self) -> Handle:
        """Return the open file, cut to `size` after a failed write."""
        handle = self.open()
        if self.torn:
            handle.file.truncate(self.size)
            self.torn = False
        return handle

    def _cut_back(self, file: File) -> None:
        try:
            file.truncate(self.size)
        except OSError:
            # `torn` stays true, so the next write truncates first.
            return
        self.torn = False

    def is_due(self, timestamp: int, now_ms: int, roll_ms: int) -> bool:
        """Return whether `timestamp` is more than `roll_ms` after that of the first batch.

        All times are in milliseconds. The clock decides if there are no timestamps or the first one
        is in the future: otherwise no record might ever be late enough (KIP-937). Raises
        `CorruptLog` and `OSError`.
        """
        if not 0 <= self.first_time() <= now_ms:
            return self.size > 0 and now_ms - self.created_ms > roll_ms
        # The jitter of the segment is part of `roll_ms`: logs that were created together would
        # otherwise all roll, and sync, at the same moment.
        # Until a timestamp reaches `roll_after`, an append needs one comparison and not this call.
        self.roll_after = self.first_timestamp + roll_ms
        return timestamp > self.roll_after

    def first_time(self) -> int:
        """Return the greatest timestamp of the first batch (ms), -1 without one.

        Raises `CorruptLog` and `OSError`.
        """
        if self.first_timestamp < 0:
            for _, header in scan_headers(self.open().file, 0, self.size):
                self.first_timestamp = header.max_timestamp
                break
        return self.first_timestamp

    # Finding

    def position_before_time(self, timestamp: int) -> int:
        """Return the position of a batch before which every timestamp is below `timestamp`.

        `has_time` must be true of the index entry that this uses. The timestamp is in milliseconds,
        the position in bytes. Raises `CorruptLog` and `OSError`.
        """
        # The entry has the greatest timestamp of all batches up to its own. So every batch before
        # an entry below `timestamp` is too old, even if timestamps fall in between.
        entry = self.index.floor_time(timestamp)
        if entry < 0:
            return 0
        return self.position_of(self.base_offset + self.index.time_offsets[entry])

    def has_time(self, entry: int) -> bool:
        """Return whether the batch named by an entry of the time index has its timestamp.

        Raises `CorruptLog` and `OSError`.
        """
        index = self.index
        offset = self.base_offset + index.time_offsets[entry]
        batches = scan_headers(self.open().file, self.position_of(offset), self.size)
        _, header = next(batches, (0, None))
        return header is not None and (
            (header.last_offset, header.newest_timestamp) == (offset, index.times[entry])
        )

    def position_of(self, offset: int) -> int:
        """Return where the first batch that ends at or after `offset` begins, else `size`.

        An index entry that disagrees with the log rebuilds the index first. Raises `CorruptLog` and
        `OSError`.
        """
        index = self.indexes.loaded or self.index
        entry = index.floor(offset - self.base_offset)
        if not index.trusted and not self.is_true(entry):
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
            # The last offset decides, not the base: after a compaction an offset may lie in a gap,
            # and the search has to stop at the first batch that ends behind it.
            if base + delta >= offset:
                return position
            position += length + LENGTH_OVERHEAD
        return size

    def search_range(self, offset: int) -> tuple[int, int]:
        """Return the range that `position_of` may read, if the index is right.

        It includes the batches from which a check of the result has to begin (`entry_before`). Both
        ends are byte positions; the second is exclusive. Raises `CorruptLog` and `OSError`.
        """
        positions = self.index.positions
        entry = self.index.floor(offset - self.base_offset)
        # One read more than the distance between the entries: a header that begins before the next
        # entry may extend beyond it.
        following = positions[entry + 1] if entry + 1 < len(positions) else self.size
        # A check of batches that an earlier process wrote begins one entry earlier: it needs a
        # batch whose place is known to be right.
        first = entry - 1 if self.unchecked and entry > 0 else entry
        return positions[first] if first >= 0 else 0, min(following + READ_SIZE, self.size)

    def whole_batches(self, position: int, end: int, max_bytes: int, first: int | None) -> int:
        """Return the bytes of whole batches from `position`: at most `max_bytes`, or one batch.

        They end at or before `end`, and may fall short of `max_bytes` by an index interval and a
        batch. `first` is the size of the batch at `position` if it is known. Raises `CorruptLog`
        and `OSError`.
        """
        if first is not None and first >= max_bytes:
            return first
        index = self.indexes.loaded or self.index
        entry = index.floor_position(min(position + max_bytes, end))
        if not index.trusted and not self.is_true(entry):
            self.rebuild_index("it disagrees with the log")
            return self.whole_batches(position, end, max_bytes, first)
        if entry >= 0 and index.positions[entry] > position:
            return index.positions[entry] - position
        file, at = self.open().file, position + (first or 0)
        while at < end:
            _, length, _ = self._span(file.read_at(at, SPAN.size), 0, at)
            following = at + length + LENGTH_OVERHEAD
            # At least one batch is returned, however large: otherwise a consumer with a small limit
            # could never pass it (KIP-74).
            if following - position > max_bytes and at > position:
                break
            at = following
            if at - position >= max_bytes:
                break
        return at - position

    def last_time_position(self) -> int:
        """Return where the batch of the last time entry begins, or a batch before it.

        Raises `CorruptLog` and `OSError`.
        """
        position = self.last_entry_position()
        return self.index.last_time_position if position is None else position

    def last_entry_position(self) -> int | None:
        """Return the same without loading the indexes; `None` if only they can answer.

        They are needed if the files disagree with the log or end far before it. Raises `CorruptLog`
        and `OSError`.
        """
        entry, time = self.indexes.last_entries()
        # An index entry beyond the last time entry: timestamps fell, or the time index lost its
        # end. Only the whole index shows which.
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
        """Return the position of the last index entry before `position`; 0 without one.

        Raises `CorruptLog` and `OSError`.
        """
        index = self.index
        entry = index.floor_position(position - 1)
        if not index.trusted and not self.is_true(entry):
            self.rebuild_index("it disagrees with the log")
            return self.entry_before(position)
        return index.positions[entry] if entry >= 0 else 0

    def entry_for(self, offset: int) -> int:
        """Return the position of the index entry where a search for `offset` starts, else 0.

        Raises as `index`.
        """
        entry = self.index.floor(offset - self.base_offset)
        return self.index.positions[entry] if entry >= 0 else 0

    def too_short(self, offset: int) -> CorruptLog:
        """Return the error for a segment whose file ends before an offset that it should hold.

        The error's position is the size of the file in bytes.
        """
        reason = f"the file ends before offset {offset}, the segment at {self.next_offset}"
        return CorruptLog(self.path(LOG), self.size, reason)

    def look_ahead(self, position: int, size: int) -> tuple[tuple[int, int] | None, bool]:
        """Return the batch after a range, and guess whether the page cache holds the range.

        The batch is its base offset and its size, and `None` if it has no header or if reading that
        would wait for the device. The position and the sizes are in bytes. Raises `OSError` if the
        file cannot be opened.
        """
        disk, file = self._handles.disk, (self.handle or self.open()).file
        # This is a hint for the cache of known batches. The loop must not wait for the device to
        # get it.
        head = disk.read_resident(file, position + size, _SPAN_SIZE)
        base, length, _ = (0, 0, 0) if head is None else SPAN.unpack(head)
        # The ends of a range are often resident because of other reads, so they prove less than its
        # middle.
        if length >= _LENGTH_MIN:
            middle = size <= _ENDS_TELL_MAX or disk.is_resident(file, position + size // 2, 1)
            return (base, length + LENGTH_OVERHEAD), middle
        # The byte after the range is probed: reading the header may also have failed because the
        # file system cannot report residency.
        is_resident = disk.is_resident(file, position + size // 2, 1)
        return None, is_resident and disk.is_resident(file, position + size, 1)

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
        """Return an offset that no batch before `position` reaches, close to the lowest such.

        Raises `CorruptLog` and `OSError`. `position` is in bytes, the offset exclusive.
        """
        index = self.index
        entry = bisect_left(index.positions, position)
        # Behind the last entry only the end of the segment is a safe bound: the index does not say
        # which offsets these batches have.
        if entry == len(index.positions):
            return self.next_offset
        if not index.trusted and not self.is_true(entry):
            self.rebuild_index("it disagrees with the log")
            return self.end_of_reads(position)
        return self.base_offset + index.offsets[entry]

    # Older than the process

    def find(self, size: int) -> None:
        """Take note of a file of `size` bytes that is older than the process."""
        # Another process wrote these bytes, and the device may have changed them since. They are
        # checked before they are first served (`Checks`), not at the start: that would cost seconds
        # per GB.
        self.size = self.unchecked = size
        self.checks = Checks() if size else None

    def note_checked(self) -> None:
        """Take note that all of the file has been checked."""
        self.unchecked, self.checks = 0, None

    # Indexes

    @property
    def index(self) -> SegmentIndex:
        """Both indexes, loaded and compared with the log on first use.

        Raises `CorruptLog` and `OSError`; only the end of the segment is known then.
        """
        indexes = self.indexes
        if indexes.loaded is None:
            self.next_offset = indexes.load(self._batches)
            self._handles.free_capacity(self)
        assert indexes.loaded is not None
        return indexes.loaded

    @property
    def _batches(self) -> Batches:
        return Batches(self.open, self.size, self.next_offset, self.sealed)

    @property
    def max_timestamp(self) -> int:
        """The greatest timestamp of its batches (ms), -1 without one; see `knows_greatest`."""
        return self.indexes.max_timestamp

    def knows_greatest(self) -> bool:
        """Return whether `max_timestamp` is that of all records; if not, load the indexes.

        They need not be loaded if timestamps rose with the offsets. Raises `CorruptLog` and
        `OSError`.
        """
        return self.indexes.knows_greatest or self.indexes.find_greatest(self._batches)

    def load_tail(self) -> None:
        """Find the end of a cleanly closed segment from the last index entries on.

        Raises `CorruptLog` and `OSError`.
        """
        self.next_offset = self.indexes.load_tail(self._batches)
        self._handles.free_capacity(self)

    def distrust_index(self) -> None:
        """Have the indexes rebuilt before their next use, by a thread if a reader can wait.

        Indexes of an active segment stay loaded, because appends need them; each used entry is
        compared with the log.
        """
        self.indexes.distrust(unload=self.sealed)

    def apply(self, copy: Segment) -> None:
        """Take over the indexes that a copy of this segment has loaded or rebuilt in a thread.

        The segment may have grown meanwhile: the copy follows. Raises `OSError`, and `CorruptLog`
        as `note_header`, before anything is taken over.
        """
        assert copy.size <= self.size
        # Batches that the loop appended while the thread worked are missing in the copy.
        for position, header in scan_headers(self.open().file, copy.size, self.size):
            copy.note_header(position, header)
        # No step before this may fail half-way: until here the segment has its old index, from here
        # on the new one.
        self.indexes.apply(copy.indexes, is_sealed=self.sealed)
        self._handles.free_capacity(self)

    def rebuild_index(self, reason: str) -> None:
        """Make both indexes from the log, in memory and on disk. Raises as `index`."""
        self.next_offset = self.indexes.rebuild(self._batches, reason)
        self._handles.free_capacity(self)

    def begin_rebuild(self) -> None:
        """Empty the indexes; every batch must then be noted again, in order. Raises `OSError`."""
        self.indexes.begin_rebuild()
        self.next_offset = self.base_offset

    def end_rebuild(self) -> None:
        """Write the indexes after every batch has been noted. Raises `OSError`."""
        self.indexes.end_rebuild(is_sealed=self.sealed)

    def note_header(self, position: int, header: BatchHeader) -> None:
        """Note a batch found in the file. Raises `CorruptLog` if it cannot be of this segment.

        `position` is in bytes. The indexes have been loaded, or their rebuild has begun.
        """
        self.next_offset = self.indexes.note_header(position, header)
        if position == 0:
            self.first_timestamp = header.newest_timestamp

    def is_true(self, entry: int) -> bool:
        """Return whether the batch at an entry's position is the one it names; -1 is no entry.

        The indexes have been loaded. Raises `OSError`.
        """
        index = self.indexes.loaded
        assert index is not None
        return entry < 0 or is_true(self.open().file, self.base_offset, index, entry)

    @property
    def unloadable_bytes(self) -> int:
        index = self.indexes.loaded
        if index is None or not self.sealed:
            return 0
        return len(index.offsets) * ENTRY_SIZE + len(index.times) * TIME_ENTRY_SIZE

    def unload(self) -> None:
        """Give up the descriptor and, once sealed, the indexes."""
        if self.sealed:
            self.indexes.unload()
        if self.sealed and self.txn_index is not None and not self.txn_index.torn:
            # A torn index keeps its entries: the file may have more of them than the log has
            # markers.
            self.txn_index.entries = None
        self._handles.close(self)

    # Ending

    def cut_at(self, position: int) -> None:
        """End the file at `position`, up to which every batch has been noted. Raises `OSError`."""
        self.shorten(position)
        self.indexes.write()

    def shorten(self, position: int) -> None:
        """Cut the file at `position`, durably.

        Otherwise a power failure could restore old batches behind new ones of the same offsets.
        Raises `OSError`.
        """
        assert 0 <= position <= self.size
        file = self.open().file
        file.truncate(position)
        file.sync()
        self.size = position
        # Checks were recorded for positions in the old file; new batches will take some of these.
        if position < self.unchecked:
            self.find(position)

    def end_before(self, offset: int) -> int:
        """Return where the log ends if the batch that holds `offset` is cut off.

        That is below `offset` if the batch begins before it. Raises `CorruptLog` and `OSError`.
        """
        position = self.position_of(offset)
        if position == self.size:
            return offset
        # A batch is cut as a whole: the leader sends it again from its base offset.
        head = self.open().file.read_at(position, SPAN.size)
        return min(offset, self._span(head, 0, position)[0])

    def truncate(self, copy: Segment) -> None:
        """Cut off everything that is missing in `copy`, which a thread has shortened.

        Raises `CorruptLog` and `OSError`.
        """
        self.shorten(copy.size)
        # Appends continue here. The next batch decides the time of the first record of an empty
        # segment, as in a new one.
        self.torn = self.sealed = False
        if not copy.size:
            self.first_timestamp = self.roll_after = -1
        self.apply(copy)
        if not self.index.trusted:
            self.indexes.cut_files()
        self.next_offset = copy.next_offset

    def forget_from(self, end: int) -> None:
        """Shorten this copy of a segment to what lies before offset `end`, which begins a batch.

        The file stays as it is. Raises `CorruptLog` and `OSError`.
        """
        self.size, self.next_offset = self.position_of(end), end
        self.torn = self.sealed = False
        self.next_offset = self.indexes.truncate(self._batches)

    def seal(self) -> None:
        """End the segment: add the entry of the greatest timestamp, and write all entries.

        Raises `CorruptLog` and `OSError`.
        """
        # The greatest timestamp is complete only with the whole index loaded.
        _ = self.index
        self.indexes.complete()
        self.sealed = True
        self._handles.free_capacity(self)

    def finish(self) -> None:
        """Write the entries that the index files lack, before the log is closed.

        Raises `CorruptLog` and `OSError`.
        """
        if self.indexes.loaded is not None:
            # The entries of the active segment are completed, too: the next start trusts the last
            # one and scans only the bytes behind it.
            # Not `seal`: several threads finish logs at once, and all logs share the handles.
            self.indexes.complete()
            self.sealed = True
