"""The files of a compaction: the segments of a job, and the cleaned segment that replaces them.

Segments are read as they were when the job was made, even if their files are renamed. The indexes
of a cleaned segment are the same as after appending the batches. Its files have `.cleaned` names;
files that a killed helper left are removed first. `finish` makes all files durable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

from lakelog.records.batch import MAGIC, BatchHeader, CorruptRecord, check_crc
from lakelog.runtime.api import Buffer, Disk, File
from lakelog.storage.compaction.job import CompactionJob, Source
from lakelog.storage.compaction.transactions import find_aborted
from lakelog.storage.errors import CorruptLog
from lakelog.storage.files import (
    CLEANED,
    INDEX,
    LOG,
    SEGMENT_SUFFIXES,
    TIME_INDEX,
    TXN_INDEX,
    file_name,
    remove_if_exists,
)
from lakelog.storage.segments.scan import scan_batches
from lakelog.storage.segments.segment_index import SegmentIndex
from lakelog.storage.segments.txn_index import AbortedTransaction, encode_aborted

Throttle = Callable[[int], None]


class SourceFiles:
    """Open files of all segments of a job; they are closed with `files`."""

    def __init__(
        self, disk: Disk, job: CompactionJob, throttle: Throttle, files: ExitStack
    ) -> None:
        self._read_bytes = job.read_bytes
        self._throttle = throttle
        self._files: dict[int, File] = {}
        for source in (*job.segments, *job.later):
            file = disk.open(job.folder / file_name(source.base_offset, LOG))
            files.callback(file.close)
            self._files[source.base_offset] = file

    def path(self, source: Source) -> Path:
        return self._files[source.base_offset].path

    def aborted(self, job: CompactionJob) -> list[AbortedTransaction]:
        sources = (*job.segments, *job.later)
        return find_aborted((self._files[source.base_offset], source.size) for source in sources)

    def batches(self, source: Source) -> Iterator[tuple[int, bytes, BatchHeader]]:
        """Yield each batch with its position. Raises `CorruptLog` for an invalid one, `OSError`."""
        file, next_offset, position = self._files[source.base_offset], source.base_offset, 0
        read = partial(self._read, file)
        try:
            for _, header, window, at in scan_batches(read, source.size, self._read_bytes):
                batch = window[at : at + header.size]
                _check(batch, header, next_offset, source.end_offset)
                yield position, batch, header
                next_offset = header.last_offset + 1
                position += header.size
        except CorruptRecord as error:
            raise CorruptLog(file.path, position, str(error)) from error

    def _read(self, file: File, position: int, size: int) -> bytes:
        data = file.read_at(position, size)
        self._throttle(len(data))
        return data


def _check(batch: bytes, header: BatchHeader, next_offset: int, end_offset: int) -> None:
    if header.magic != MAGIC:
        raise CorruptRecord("no batch of magic 2")
    if not check_crc(batch, 0, header):
        raise CorruptRecord("the checksum does not match")
    first, last = header.base_offset, header.last_offset
    if not next_offset <= first <= last < end_offset:
        raise CorruptRecord(f"offsets {first} to {last} are impossible")


_WRITE_BYTES = 1 << 20
_SYNC_BYTES = 16 << 20
"""Bytes between two syncs. A single sync of a GiB would delay all other writes for seconds."""


class CleanedSegment:
    """A segment at `base_offset` that grows batch by batch; `size` in bytes."""

    __slots__ = (
        "_base",
        "_disk",
        "_file",
        "_folder",
        "_index",
        "_interval",
        "_since_entry",
        "_synced",
        "_waiting",
        "_written",
        "max_offset",
        "max_timestamp",
        "size",
    )

    def __init__(self, disk: Disk, folder: Path, base_offset: int, interval: int) -> None:
        self._disk = disk
        self._folder = folder
        self._base = base_offset
        self._interval = interval
        for suffix in SEGMENT_SUFFIXES:
            remove_if_exists(disk, self._path(suffix))
        self._file = disk.open(self._path(LOG), create=True)
        self._index = SegmentIndex()
        self._since_entry = 0
        self._waiting = bytearray()
        self._written = self._synced = 0
        self.size = 0
        self.max_timestamp = -1
        self.max_offset = -1
        """Last offset of the earliest batch with `max_timestamp`."""

    def append(self, batch: Buffer, last_offset: int, max_timestamp: int) -> None:
        """Append a batch. Raises `OSError`.

        `max_timestamp`: milliseconds since the epoch, -1 without records.
        """
        assert last_offset >= self._base
        if max_timestamp > self.max_timestamp:
            self.max_timestamp, self.max_offset = max_timestamp, last_offset
        if self._since_entry > self._interval:
            self._index.add(last_offset - self._base, self.size)
            self._index.add_time(self.max_timestamp, self.max_offset - self._base)
            self._since_entry = 0
        self._since_entry += len(batch)
        self._waiting += batch
        self.size += len(batch)
        if len(self._waiting) >= _WRITE_BYTES:
            self._write()

    def finish(self, aborted: Sequence[AbortedTransaction], modified_ms: int) -> tuple[str, ...]:
        """Make the segment durable and return the suffixes of its files. Raises `OSError`.

        `modified_ms`: milliseconds since the epoch.
        """
        self._write()
        self._file.sync()
        self._file.close()
        index = self._index
        index.add_time(self.max_timestamp, self.max_offset - self._base)
        # The log first: an index must never name bytes that a power failure can remove.
        self._write_file(INDEX, index.encode_offsets(0))
        self._write_file(TIME_INDEX, index.encode_times(0))
        suffixes = [LOG, INDEX, TIME_INDEX]
        if aborted:
            self._write_file(TXN_INDEX, encode_aborted(aborted))
            suffixes.append(TXN_INDEX)
        # `log.retention.ms` falls back to this time for records without timestamps.
        self._disk.set_modified_ms(self._path(LOG), modified_ms)
        return tuple(suffixes)

    def discard(self) -> None:
        """Remove all files. Raises `OSError`."""
        self._file.close()
        for suffix in SEGMENT_SUFFIXES:
            remove_if_exists(self._disk, self._path(suffix))

    def _write(self) -> None:
        self._file.write_at(self._written, self._waiting)
        self._written += len(self._waiting)
        self._waiting = bytearray()
        if self._written - self._synced >= _SYNC_BYTES:
            self._file.sync()
            self._synced = self._written

    def _write_file(self, suffix: str, content: bytes) -> None:
        with closing(self._disk.open(self._path(suffix), create=True)) as file:
            file.write_at(0, content)
            file.sync()

    def _path(self, suffix: str) -> Path:
        return self._folder / (file_name(self._base, suffix) + CLEANED)
