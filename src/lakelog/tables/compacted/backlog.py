"""Reads the rows of the archive's table that the table of newest records does not have yet.

A `Spill` keeps them on the local disk, by the bucket of their keys. A bucket's rows are read back
together, and one bucket at a time. The files have no name, so the operating system removes them
when the process ends, even by a kill.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc

from lakelog.base.closeable import Closeable
from lakelog.tables.compacted.merge import last_of_partitions
from lakelog.tables.hybrid.archives import TopicArchive
from lakelog.tables.hybrid.files import files_of
from lakelog.tables.hybrid.reading import read_archived
from lakelog.tables.hybrid.rows import ArchivedRows
from lakelog.tables.iceberg.buckets import by_bucket
from lakelog.tables.topic.ranges import OffsetRange
from lakelog.tables.typed.columns import own_schema

_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")


class Spill(Closeable):
    """Rows with keys, in one temporary file for each of `buckets`.

    sizes: the bytes of the rows of each bucket, in memory. Methods raise `OSError`, for example on
    a full disk.
    """

    def __init__(self, buckets: int, schema: pa.Schema) -> None:
        self.sizes: dict[int, int] = {}
        self._buckets = buckets
        self._schema = schema
        self._stack = ExitStack()
        self._files: dict[int, IO[bytes]] = {}
        self._writers: dict[int, pa.RecordBatchStreamWriter] = {}

    def close(self) -> None:
        """Remove the files."""
        self._stack.close()

    def add(self, rows: pa.Table) -> None:
        """Add rows with keys that are not null."""
        for bucket, part in by_bucket(rows, self._buckets):
            if bucket not in self._writers:
                self._open(bucket)
            self._writers[bucket].write_table(part)
            self.sizes[bucket] = self.sizes.get(bucket, 0) + part.nbytes

    def read(self, bucket: int) -> pa.Table:
        """Return the rows of a bucket. No row can be added to it afterwards."""
        if bucket not in self._writers:
            return self._schema.empty_table()
        self._writers[bucket].close()
        self._files[bucket].seek(0)
        return pa.ipc.open_stream(self._files[bucket]).read_all()

    def _open(self, bucket: int) -> None:
        file = tempfile.TemporaryFile(prefix="lakelog-latest-")  # noqa: SIM115 - the stack closes it
        self._stack.enter_context(file)
        writer = pa.ipc.new_stream(file, self._schema, options=_COMPRESSED)
        self._files[bucket], self._writers[bucket] = file, writer


_CHUNK_BYTES = 32 << 20


@dataclass(slots=True)
class Taken:
    """Rows that were read. ends: the offsets up to which. null_keys: rows without a key."""

    rows: int = 0
    ends: dict[int, int] = field(default_factory=dict)
    null_keys: dict[int, int] = field(default_factory=dict)


def backlog(
    archive: TopicArchive, starts: Mapping[int, int], ends: Mapping[int, int]
) -> list[OffsetRange]:
    """Return the archived offsets between `starts` (0 by default) and `ends` of the partitions."""
    ranges = []
    for partition, extent in sorted(archive.progress.extents.items()):
        start = max(extent.start, starts.get(partition, 0))
        end = min(extent.end, ends.get(partition, 0))
        if start < end:
            ranges.append(OffsetRange(archive.topic, partition, start, end, archive.topic_id))
    return ranges


def take(
    archive: TopicArchive, ranges: Iterable[OffsetRange], spill: Spill, bytes_max: int
) -> Taken:
    """Add the last row of each key and partition to `spill`, in chunks.

    Stop when a bucket has about `bytes_max`. Rows without a key are counted only. Raises
    `ArchiveUnreadableError` and `OSError`.
    """
    reader = ArchivedRows(
        own_schema(archive.table), archive.address.catalog, null_timestamps=True, hint=""
    )
    taken = Taken()
    for part in ranges:
        chunk: list[pa.RecordBatch] = []
        size = 0
        for batch in read_archived(reader, part, archive.address, files_of(archive, [part])):
            chunk.append(batch)
            size += batch.nbytes
            if size < _CHUNK_BYTES:
                continue
            _add(chunk, part.partition, spill, taken)
            taken.ends[part.partition] = batch.column("offset")[-1].as_py() + 1
            chunk, size = [], 0
            if max(spill.sizes.values(), default=0) >= bytes_max:
                return taken
        _add(chunk, part.partition, spill, taken)
        taken.ends[part.partition] = part.end
    return taken


def _add(chunk: Sequence[pa.RecordBatch], partition: int, spill: Spill, taken: Taken) -> None:
    if not chunk:
        return
    rows = pa.Table.from_batches(chunk)
    taken.rows += rows.num_rows
    without = rows.column("key").null_count
    if without:
        taken.null_keys[partition] = taken.null_keys.get(partition, 0) + without
        rows = rows.filter(pc.is_valid(rows.column("key")))
    spill.add(last_of_partitions(rows))
