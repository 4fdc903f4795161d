"""Keeps the indexes of one segment: loads, compares, extends, rebuilds and writes them.

Index files are hints. They may be of a log that was cut since, or lack entries that were not
written in time, so their last entries are compared with the log when they are loaded. Indexes that
disagree with the log are rebuilt from it. New entries are written in runs, and at the latest when
the segment is flushed, sealed or closed.

The keeper reads the batches that its segment hands in (`Batches`) and returns where they end; it
changes nothing but the indexes and their files.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from copy import copy
from typing import NamedTuple

from lakelog.base.config.log_config import LogConfig
from lakelog.records.batch import BatchHeader
from lakelog.runtime.api import File
from lakelog.storage.errors import CorruptLog
from lakelog.storage.files import INDEX, LOG, TIME_INDEX, log_rebuild
from lakelog.storage.segments.handles import Handle
from lakelog.storage.segments.scan import (
    Tail,
    follow,
    greatest_at_end,
    is_true,
    mark_misplaced,
    scan_headers,
    scan_times,
)
from lakelog.storage.segments.segment_index import IndexFiles, SegmentIndex

_RUN = 64
"""Entries kept in memory before they are written."""


class Batches(NamedTuple):
    """The batches that the indexes are of: `size` bytes of a file."""

    open: Callable[[], Handle]
    """Returns the file. An empty segment must not be opened only to learn that."""
    size: int
    end: int
    """The offset after the last batch, as the segment knows it."""
    is_sealed: bool
    """Whether the batches have to end there, because the next segment begins there."""

    @property
    def file(self) -> File:
        return self.open().file


class IndexKeeper:
    """The indexes of one segment, and the greatest timestamp of its batches.

    Methods that load, rebuild or write raise `OSError`, and `CorruptLog` if the log is damaged so
    that no index can be made from it.
    """

    __slots__ = (
        "_bytes_max",
        "_files",
        "bytes_since_entry",
        "error",
        "full",
        "interval",
        "is_wrong",
        "knows_greatest",
        "loaded",
        "max_timestamp",
        "max_timestamp_offset",
    )

    def __init__(self, files: IndexFiles, config: LogConfig) -> None:
        self._files = files
        self._bytes_max = config.segment_index_bytes
        self.interval = config.index_interval_bytes
        """A batch gets an entry after more than this number of bytes without one."""
        self.bytes_since_entry = 0
        self.loaded: SegmentIndex | None = None
        """`None` until the indexes are first used, and again once unloaded."""
        self.full = False
        """Whether an index has no capacity for another entry."""
        self.is_wrong = False
        """Whether the indexes, loaded or not, are known to disagree with the log."""
        self.error: CorruptLog | None = None
        """Why no index can be made from the log; further attempts would fail as well."""
        self.max_timestamp = -1
        self.max_timestamp_offset = -1
        """Last offset of the earliest batch with `max_timestamp`."""
        self.knows_greatest = False
        """Whether `max_timestamp` is known to be that of all batches."""

    def create(self) -> None:
        """Make the files of a new, empty segment; existing ones are emptied."""
        self.loaded = SegmentIndex()
        self._files.cut(self.loaded)
        self.knows_greatest = True

    def detached(self) -> IndexKeeper:
        """Return a keeper for a copy of the segment: nothing is loaded, and no file written."""
        keeper = copy(self)
        keeper._files = self._files.unwritten()
        keeper.loaded = None
        return keeper

    # Extending

    def note(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        """Add a batch to the loaded indexes. Call it for every batch, in order.

        The position and `size` are in bytes, `max_timestamp` is in milliseconds.
        """
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if self.bytes_since_entry > self.interval:
            self.add_entry(position, last_offset)
        self.bytes_since_entry += size

    def note_header(self, position: int, header: BatchHeader) -> int:
        """Note a batch found in the file; return the offset after it.

        `position` is in bytes. Raises `CorruptLog` if the batch cannot be of this segment.
        """
        # Index entries hold the offset relative to the base in four signed bytes, as in Kafka.
        if header.last_offset - self._files.base_offset >= 1 << 31:
            text = f"offset {header.last_offset} is impossible"
            raise CorruptLog(self._files.path(LOG), position, text)
        self.note(position, header.size, header.last_offset, header.newest_timestamp)
        return header.last_offset + 1

    def add_entry(self, position: int, last_offset: int) -> None:
        """Add an entry for a batch; its timestamp has been noted. The position is in bytes."""
        index = self.loaded
        assert index is not None
        base = self._files.base_offset
        index.add(last_offset - base, position)
        index.add_time(self.max_timestamp, self.max_timestamp_offset - base)
        self.bytes_since_entry = 0
        self.full = index.entries_left(self._bytes_max) <= 0
        # Entries are derived from the log, so a crash that loses some only costs a scan. One write
        # for each entry would cost a system call for every few batches.
        if len(index.offsets) - index.written >= _RUN:
            self.try_write()

    @property
    def entries_left(self) -> int:
        """The number of entries that still fit; a batch adds one at most. They are loaded."""
        assert self.loaded is not None
        return self.loaded.entries_left(self._bytes_max)

    # Writing

    def write(self) -> None:
        """Append the entries that the index files lack, without a sync."""
        if self.loaded is not None:
            self._files.append(self.loaded)

    def try_write(self) -> None:
        """Write the entries unless that fails, so that the log can be used nevertheless.

        A later attempt writes the same entries again; roll and close raise the error.
        """
        with suppress(OSError):
            self.write()

    def complete(self) -> None:
        """Add the entry of the greatest timestamp to the loaded indexes, and write all entries.

        Both files must be complete: a clean start trusts the last entry of a sealed segment.
        """
        assert self.loaded is not None
        last = self.max_timestamp_offset - self._files.base_offset
        self.loaded.add_time(self.max_timestamp, last)
        self.write()

    def cut_files(self) -> None:
        """Cut the files to the entries that the loaded indexes still have."""
        assert self.loaded is not None
        self._files.cut(self.loaded)

    def unload(self) -> None:
        """Drop the entries in memory, after an attempt to write them."""
        self.try_write()
        self.loaded = None

    # Loading, and comparing with the log

    @property
    def is_trusted(self) -> bool:
        """Whether indexes are loaded that this process made from the log."""
        return self.loaded is not None and self.loaded.trusted

    def check_error(self) -> None:
        """Raise `CorruptLog` if an earlier rebuild has failed."""
        error = self.error
        if error is not None:
            raise CorruptLog(error.path, error.position, error.reason)

    def load(self, batches: Batches) -> int:
        """Load both indexes, or rebuild them if they disagree with the log.

        Return the offset after the last batch.
        """
        self.check_error()
        try:
            end = self._load(batches)
        except (CorruptLog, OSError):
            self._drop()
            raise
        self._note_loaded()
        return end

    def _load(self, batches: Batches) -> int:
        index = self.loaded = self._files.read()
        end = None
        if not self.is_wrong and index.is_ordered(batches.size):
            end = self._resume(batches, index)
        if end is None:
            # A wrong index is as good as none, and mending parts of it would need to know which
            # parts are right.
            end = self._rebuild(batches, "it disagrees with the log")
        if batches.is_sealed:
            # Sealing adds the greatest timestamp as the last entry. Without it, entries before it
            # may be missing as well, and a search by time would end too early.
            index = self.loaded
            if self.max_timestamp >= 0 and self.max_timestamp not in index.times[-1:]:
                end = self._rebuild(batches, "it ends too early")
            self._check_end(batches, end)
        return end

    def _resume(self, batches: Batches, index: SegmentIndex) -> int | None:
        """Continue the counts where the last entries end; return the offset after the last batch.

        Return `None` if the entries are not of this log, or if time entries are missing: the
        indexes have to be rebuilt. The last time entry has the greatest timestamp only of the
        batches up to its own, so the scan begins there.
        """
        self.max_timestamp = self.max_timestamp_offset = -1
        self.bytes_since_entry = 0
        file, end = batches.file, batches.end
        # Both last entries are compared with the log: each file may have lost its end
        # independently.
        last_entry = index.positions[-1] if index.positions else 0
        floor = index.floor(index.time_offsets[-1]) if index.times else -1
        base = self._files.base_offset
        if not all(is_true(file, base, index, at) for at in (floor, len(index.offsets) - 1)):
            return None
        time_found, self.max_timestamp, self.max_timestamp_offset = scan_times(
            file, index, self._files.base_offset
        )
        # The batch of the last entry is noted again, although it has its entry: `bytes_since_entry`
        # has to count its bytes as the appends did.
        for position, header in scan_headers(file, last_entry, batches.size):
            if header.last_offset == self.max_timestamp_offset:
                time_found = time_found or header.newest_timestamp == self.max_timestamp
            end = self.note_header(position, header)
            # Each entry comes with the greatest timestamp up to its batch.
            if position == last_entry > 0 and self.max_timestamp > max(
                index.times[-1:], default=-1
            ):
                return None
        return end if time_found else None

    def load_tail(self, batches: Batches) -> int:
        """Find the end of a cleanly closed segment from the last index entries on; return it."""
        entry, time = self._files.read_last()
        if entry is None and time is None and not batches.size:
            self.loaded, self.knows_greatest = SegmentIndex(), True
            return batches.end
        base = self._files.base_offset
        if entry is not None and time is not None:
            self.max_timestamp, relative = time
            self.max_timestamp_offset = base + relative
        # Without an entry the scan starts at the beginning: a segment below one index interval has
        # none.
        offset, position = entry or (0, 0)
        # Offset and position are checked together. An index of another log of the same base may
        # have an entry whose position happens to be the start of a batch.
        last_offset = base + offset if entry else -1
        state = Tail(
            batches.end, self.bytes_since_entry, self.max_timestamp, self.max_timestamp_offset
        )
        try:
            tail = follow(batches.file, batches.size, position, last_offset, self.interval, state)
        # The entry may be of a log that was cut since; a rebuild decides whether the log is
        # damaged.
        except CorruptLog:
            tail = None
        if tail is None:
            return self.rebuild(batches, "it does not lead to the end of the log")
        end, self.bytes_since_entry, self.max_timestamp, self.max_timestamp_offset = tail
        self.knows_greatest = self.knows_greatest or entry is None
        return end

    def last_entries(self) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
        """Return the last entry of each file, without loading the indexes.

        They are (relative offset, position) and (timestamp, relative offset).
        """
        return self._files.read_last()

    def find_greatest(self, batches: Batches) -> bool:
        """Return whether `max_timestamp` is that of all batches; if not, load the indexes.

        They need not be loaded if timestamps rose with the offsets.
        """
        if not self.knows_greatest:
            entry, time = self._files.read_last()
            if entry is None or time is None:
                return False
            greatest = greatest_at_end(
                batches.file, batches.size, self._files.base_offset, entry, time
            )
            if greatest is not None:
                self.max_timestamp, self.max_timestamp_offset = greatest
                self.knows_greatest = True
        return self.knows_greatest

    # Rebuilding

    def distrust(self, *, unload: bool) -> None:
        """Have the indexes rebuilt before they are loaded again."""
        # The wrong entries must not be unloaded and read again as if they were right: only a
        # rebuild resets the flag.
        self.is_wrong = True
        if unload:
            self._drop()

    def rebuild(self, batches: Batches, reason: str) -> int:
        """Make both indexes from the log, in memory and on disk.

        Return the offset after the last batch.
        """
        try:
            end = self._rebuild(batches, reason)
        except (CorruptLog, OSError):
            self._drop()
            raise
        self._note_loaded()
        return end

    def _rebuild(self, batches: Batches, reason: str) -> int:
        path, times = self._files.path(INDEX), self._files.path(TIME_INDEX).name
        log_rebuild("%s: %s; rebuilding it and %s", path, reason, times)
        self.begin_rebuild()
        base = end = self._files.base_offset
        headers = scan_headers(batches.file, 0, batches.size)
        # The CRC does not cover the base offset, so a flipped bit there is found only by comparison
        # with the neighbours.
        for position, header, is_misplaced in mark_misplaced(headers, base):
            if is_misplaced:
                # An entry for a wrong base offset would make searches miss the batches after it.
                # The next batch gets an entry at once, so that a search for its offsets does not
                # start before the misplaced batch.
                self.bytes_since_entry = self.interval + 1
                end = header.last_offset + 1
            else:
                end = self.note_header(position, header)
        if batches.is_sealed:
            self._check_end(batches, end)
        self.end_rebuild(is_sealed=batches.is_sealed)
        return end

    def begin_rebuild(self) -> None:
        """Empty the indexes; every batch must then be noted again, in order."""
        self.is_wrong, self.error = False, None
        self.create()
        self.max_timestamp = self.max_timestamp_offset = -1
        self.bytes_since_entry = 0

    def end_rebuild(self, *, is_sealed: bool) -> None:
        """Write the indexes after every batch has been noted."""
        if is_sealed:
            self.complete()
        else:
            self.write()

    def truncate(self, batches: Batches) -> int:
        """Remove the entries of batches that were cut off; return the offset after the last one."""
        index = self.loaded
        assert index is not None
        index.truncate(batches.end - self._files.base_offset)
        end = self._resume(batches, index)
        return self.rebuild(batches, "it disagrees with the log") if end is None else end

    def apply(self, detached: IndexKeeper, *, is_sealed: bool) -> None:
        """Take over the indexes that a detached keeper has loaded or rebuilt in a thread.

        Files that cannot be written now are written with later entries.
        """
        index = detached.loaded
        assert index is not None
        self.loaded, self.knows_greatest = index, True
        self.is_wrong = False
        self.max_timestamp = detached.max_timestamp
        self.max_timestamp_offset = detached.max_timestamp_offset
        self.bytes_since_entry = detached.bytes_since_entry
        self._note_loaded()
        if index.trusted:
            with suppress(OSError):
                # The files are emptied before they are written: entries of the wrong index must not
                # remain behind the new ones.
                self._files.cut(SegmentIndex())
                self.end_rebuild(is_sealed=is_sealed)

    def _note_loaded(self) -> None:
        self.knows_greatest = True
        self.full = self.entries_left <= 0

    def _drop(self) -> None:
        self.loaded, self.knows_greatest = None, False

    def _check_end(self, batches: Batches, end: int) -> None:
        """Check that the batches of a sealed segment end where the next one begins."""
        if end != batches.end:
            text = f"it ends at offset {end}, the next segment begins at {batches.end}"
            raise CorruptLog(self._files.path(LOG), batches.size, text)
