"""A segment's file, what is known of it, and how its indexes are kept true.

Whatever is in memory about the file's content comes from appends, from a scan, or from index files
that were compared with the log. An index that disagrees with the log is built again. Entries are
written in runs, and at the latest when the segment is flushed, sealed or closed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from lakelog.base.events import event
from lakelog.base.topic_config import LogConfig
from lakelog.records.batch import BatchHeader, HeaderFields
from lakelog.runtime.api import Buffer, Disk
from lakelog.storage.checking import Checks
from lakelog.storage.errors import CorruptLog
from lakelog.storage.files import remove_if_exists
from lakelog.storage.handles import Handle, HandleCache
from lakelog.storage.index import ENTRY_SIZE, TIME_ENTRY_SIZE, SegmentIndex
from lakelog.storage.index_check import follow, learn_greatest, resume
from lakelog.storage.index_files import IndexFiles
from lakelog.storage.names import INDEX, LOG, TIME_INDEX, TXN_INDEX, file_name
from lakelog.storage.scan import scan_headers, tell_misplaced
from lakelog.storage.txn_index import TxnIndex

_logger = logging.getLogger(__name__)

_INDEX_RUN = 64
"""Index entries kept in memory before they are written."""


class IndexedSegment:
    """`size` bytes of batches whose offsets begin at `base_offset` and end before `next_offset`."""

    __slots__ = (
        "_greatest_known",
        "_handles",
        "_index_bytes",
        "_interval",
        "base_offset",
        "bytes_since_entry",
        "checks",
        "created_ms",
        "first_timestamp",
        "folder",
        "full",
        "handle",
        "index_error",
        "index_is_wrong",
        "jitter_ms",
        "loaded_index",
        "max_timestamp",
        "max_timestamp_offset",
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
        self._greatest_known = False
        self._interval = config.index_interval_bytes
        self._index_bytes = config.segment_index_bytes
        self.folder = folder
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size = 0
        self.handle: Handle | None = None
        self.loaded_index: SegmentIndex | None = None
        """`None` until `index` is asked for, and once unloaded."""
        self.bytes_since_entry = 0
        self.created_ms = created_ms
        self.jitter_ms = jitter_ms
        self.first_timestamp = -1
        """Greatest timestamp of the first batch; -1 when it has not been read."""
        self.max_timestamp = -1
        self.max_timestamp_offset = -1
        """Last offset of the earliest batch with `max_timestamp`."""
        self.full = False
        """Whether an index has no room for another entry."""
        self.roll_after = -1
        """A batch with a timestamp above this is to go into another segment; -1 when not known."""
        self.sealed = False
        """Whether a later segment has taken over."""
        self.torn = False
        """Whether a failed write may have left bytes beyond `size`."""
        self.unchecked = 0
        """What lies before it was there before this process, which has not checked all of it."""
        self.checks: Checks | None = None
        """What it has checked of that."""
        self.index_is_wrong = False
        """Whether the indexes, loaded or not, are known to disagree with the log."""
        self.index_error: CorruptLog | None = None
        """Why no index can be made from the log; nobody needs to try again."""
        self.txn_index: TxnIndex | None = None
        """`None` when no transaction was aborted here."""

    def create(self) -> Self:
        """Makes the files of a new, empty segment; what has these names is cut off."""
        file = self.disk.open(self.path(LOG), create=True)
        file.truncate(0)
        file.close()
        self.loaded_index = SegmentIndex()
        self._files.cut(self.loaded_index)
        remove_if_exists(self.disk, self.path(TXN_INDEX))
        self._greatest_known = True
        return self

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

    def note(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        """Takes a batch into the indexes, as every one of them in turn has to be."""
        index = self.loaded_index if self.loaded_index is not None else self.index
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if position == 0:
            self.first_timestamp = max_timestamp
        if self.bytes_since_entry > self._interval:
            self._add_entry(index, position, last_offset)
        self.bytes_since_entry += size

    def note_run(self, batches: Sequence[Buffer], headers: Sequence[HeaderFields]) -> None:
        """As `note` for each of some batches that were written where the segment ended."""
        index = self.loaded_index
        assert index is not None, "the write has loaded it"
        position, end, greatest = self.size, self.next_offset, self.max_timestamp
        if position == 0:
            self.first_timestamp = headers[0][8]
        for batch, fields in zip(batches, headers, strict=True):
            end += fields[12]
            if fields[8] > greatest:
                self.max_timestamp = greatest = fields[8]
                self.max_timestamp_offset = end - 1
            if self.bytes_since_entry > self._interval:
                self._add_entry(index, position, end - 1)
            size = len(batch)
            self.bytes_since_entry += size
            position += size
        self.size, self.next_offset = position, end

    def _add_entry(self, index: SegmentIndex, position: int, last_offset: int) -> None:
        index.add(last_offset - self.base_offset, position)
        index.add_time(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
        self.bytes_since_entry = 0
        self.full = index.room(self._index_bytes) <= 0
        if len(index.offsets) - index.written >= _INDEX_RUN:
            self.try_write_index()

    @property
    def index_room(self) -> int:
        """Entries after which it is `full`; a batch adds one at most."""
        index = self.loaded_index if self.loaded_index is not None else self.index
        return index.room(self._index_bytes)

    def try_write_index(self) -> None:
        """Where an index that cannot be written must not fail what is done to the log.

        A later try writes the same entries again; roll and close report that they cannot.
        """
        try:
            self.write_index()
        except OSError:
            return

    @property
    def index(self) -> SegmentIndex:
        """Both indexes, loaded and compared with the log on first use.

        After a `CorruptLog` or `OSError` nothing is known of the segment but where it ends.
        """
        index = self.loaded_index
        if index is None:
            self.check_index_error()
            end = self.next_offset
            try:
                index = self._load_index(end)
            except (CorruptLog, OSError):
                self.loaded_index, self._greatest_known, self.next_offset = None, False, end
                raise
            self.full = index.room(self._index_bytes) <= 0
            self._greatest_known = True
            self._handles.make_room(self)
        return index

    def _load_index(self, end: int) -> SegmentIndex:
        index = self.loaded_index = self._files.read()
        if self.index_is_wrong or not index.is_ordered(self.size) or not resume(self, index):
            index = self._rebuilt("it disagrees with the log", end)
        if self.sealed:
            if self.max_timestamp >= 0 and self.max_timestamp not in index.times[-1:]:
                index = self._rebuilt("it ends too early", end)
            self._check_end(end)
        return index

    def _check_end(self, end: int) -> None:
        """Where another segment begins must be where this one ends."""
        if self.next_offset != end:
            text = f"it ends at offset {self.next_offset}, the next segment begins at {end}"
            raise CorruptLog(self.path(LOG), self.size, text)

    @property
    def has_trusted_index(self) -> bool:
        """Whether one is loaded that was made from the log by this process."""
        index = self.loaded_index
        return index is not None and index.trusted

    def check_index_error(self) -> None:
        """Raises `CorruptLog` if no index can be made from the log."""
        error = self.index_error
        if error is not None:
            raise CorruptLog(error.path, error.position, error.reason)

    def distrust_index(self) -> None:
        """Have the indexes rebuilt before they are used again, by a thread if a reader can wait.

        Those of an active segment stay loaded, as appends need them; each entry that is used is
        compared with the log.
        """
        self.index_is_wrong = True
        if self.sealed:
            self.loaded_index, self._greatest_known = None, False

    def adopt(self, found: IndexedSegment) -> None:
        """Take over the indexes that a copy of this segment has loaded or rebuilt in a thread.

        The segment may have grown meanwhile: the copy follows. Raises `OSError`, and `CorruptLog`
        as `note_header`, with nothing taken over. Files that cannot be written now are written
        with later entries.
        """
        index = found.loaded_index
        assert index is not None
        assert found.size <= self.size
        for position, header in scan_headers(self.open().file, found.size, self.size):
            found.note_header(position, header)
        self.loaded_index, self._greatest_known = index, True
        self.index_is_wrong = False
        self.max_timestamp = found.max_timestamp
        self.max_timestamp_offset = found.max_timestamp_offset
        self.bytes_since_entry = found.bytes_since_entry
        self.full = index.room(self._index_bytes) <= 0
        if index.trusted:
            with suppress(OSError):
                self._files.cut(SegmentIndex())
                self.end_rebuild()
        self._handles.make_room(self)

    def rebuild_index(self, reason: str) -> None:
        """Makes both indexes from the log, in memory and on disk. Raises as `index`."""
        end = self.next_offset
        try:
            self._rebuilt(reason, end)
        except (CorruptLog, OSError):
            self.loaded_index, self._greatest_known, self.next_offset = None, False, end
            raise

    def _rebuilt(self, reason: str, end: int) -> SegmentIndex:
        path, times = self.path(INDEX), self.path(TIME_INDEX).name
        _logger.warning(
            "%s: %s; it and %s are made anew",
            path,
            reason,
            times,
            extra=event("file_rebuilt", path=path),
        )
        self.begin_rebuild()
        batches = scan_headers(self.open().file, 0, self.size)
        for position, header, is_misplaced in tell_misplaced(batches, self.base_offset):
            if is_misplaced:
                self._pass_over(header)
            else:
                self.note_header(position, header)
        if self.sealed:
            self._check_end(end)
        self.end_rebuild()
        assert self.loaded_index is not None
        return self.loaded_index

    def _pass_over(self, header: BatchHeader) -> None:
        """No entry leads to a batch with wrong offsets; the next one has an entry to go on from."""
        self.bytes_since_entry = self._interval + 1
        self.next_offset = header.last_offset + 1

    def begin_rebuild(self) -> None:
        """Empties the indexes; every batch must then be noted again, in order."""
        self._greatest_known = True
        self.index_is_wrong, self.index_error = False, None
        self.loaded_index = SegmentIndex()
        self._files.cut(self.loaded_index)
        self.max_timestamp = self.max_timestamp_offset = -1
        self.bytes_since_entry = 0
        self.next_offset = self.base_offset

    def end_rebuild(self) -> None:
        if self.sealed:
            self.seal()
        else:
            self.write_index()

    def knows_greatest(self) -> bool:
        """Whether `max_timestamp` is that of all its records; if not, the indexes must be loaded.

        Without them it is known where time rose with the offsets.
        """
        if not self._greatest_known:
            self._greatest_known = learn_greatest(self, self._files)
        return self._greatest_known

    def load_tail(self) -> None:
        """Finds the end of a cleanly closed segment from the last index entries on."""
        entry, time = self._files.read_last()
        if entry is None and time is None and not self.size:
            self.loaded_index, self._greatest_known = SegmentIndex(), True
            return
        if entry is not None and time is not None:
            self.max_timestamp, relative = time
            self.max_timestamp_offset = self.base_offset + relative
        offset, position = entry or (0, 0)
        try:
            last_offset = self.base_offset + offset if entry else -1
            complete = follow(self, position, last_offset, self._interval)
        except CorruptLog:
            complete = False
        if not complete:
            self.rebuild_index("it does not lead to the end of the log")
        elif entry is None:
            self._greatest_known = True

    def write_index(self) -> None:
        """Appends the entries that the index files lack. They are not synced."""
        if self.loaded_index is not None:
            self._files.append(self.loaded_index)

    def note_header(self, position: int, header: BatchHeader) -> None:
        """`note` for a batch that is found in the file; `CorruptLog` if it cannot be of this."""
        if header.last_offset - self.base_offset >= 1 << 31:
            raise CorruptLog(self.path(LOG), position, f"offset {header.last_offset} is impossible")
        self.note(position, header.size, header.last_offset, header.newest_timestamp)
        self.next_offset = header.last_offset + 1

    def seal(self) -> None:
        """Ends the segment's growth: the greatest timestamp gets its entry, all are written."""
        index = self.index
        index.add_time(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
        self.write_index()
        self.sealed = True
        self._handles.make_room(self)

    @property
    def unloadable_bytes(self) -> int:
        index = self.loaded_index
        if index is None or not self.sealed:
            return 0
        return len(index.offsets) * ENTRY_SIZE + len(index.times) * TIME_ENTRY_SIZE

    def unload(self) -> None:
        """Gives up the descriptor and, once sealed, the indexes."""
        if self.sealed and self.loaded_index is not None:
            self.try_write_index()
            self.loaded_index = None
        if self.sealed and self.txn_index is not None and not self.txn_index.torn:
            self.txn_index.entries = None
        self._handles.close(self)
