"""The segments of a job as they were when it was made, even if their files are renamed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from lakelog.records.batch import (
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    BatchHeader,
    check_crc,
)
from lakelog.runtime.api import Disk, File
from lakelog.storage.compaction.job import CompactionJob, Source
from lakelog.storage.compaction.transactions import find_aborted
from lakelog.storage.errors import CorruptLog
from lakelog.storage.indexes.txn_index import AbortedTransaction
from lakelog.storage.names import LOG, file_name

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
        file, window, start, position = self._files[source.base_offset], b"", 0, 0
        next_offset = source.base_offset
        while position < source.size:
            at = position - start
            if at + HEADER_SIZE > len(window):
                window, start, at = self._read(file, position, self._read_bytes), position, 0
            header = _header(file, window, at, position, source.size)
            if at + header.size > len(window):
                size = max(self._read_bytes, header.size)
                window, start, at = self._read(file, position, size), position, 0
            batch = window[at : at + header.size]
            if not check_crc(batch, 0, header):
                raise CorruptLog(file.path, position, "the checksum does not match")
            if not next_offset <= header.base_offset <= header.last_offset < source.end_offset:
                reason = f"offsets {header.base_offset} to {header.last_offset} are impossible"
                raise CorruptLog(file.path, position, reason)
            next_offset = header.last_offset + 1
            yield position, batch, header
            position += header.size

    def _read(self, file: File, position: int, size: int) -> bytes:
        data = file.read_at(position, size)
        self._throttle(len(data))
        return data


def _header(file: File, window: bytes, at: int, position: int, end: int) -> BatchHeader:
    if at + HEADER_SIZE > len(window):
        raise CorruptLog(file.path, position, "a batch header is cut off")
    header = BatchHeader(*HEADER.unpack_from(window, at))
    if header.batch_length < HEADER_SIZE - LENGTH_OVERHEAD or header.magic != MAGIC:
        raise CorruptLog(file.path, position, "no batch of magic 2")
    if position + header.size > end:
        raise CorruptLog(file.path, position, f"a batch of {header.size} bytes is cut off")
    return header
