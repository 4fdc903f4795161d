"""Rows on the local disk, by the bucket of their keys.

A bucket's rows are read back together, and one bucket at a time. The files have no name, so the
operating system removes them when the process ends, even by a kill.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from typing import IO

import pyarrow as pa

from lakelog.base.closeable import Closeable
from lakelog.tables.iceberg.buckets import by_bucket

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
