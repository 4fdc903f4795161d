"""The files that one task writes: rows, and dead letters.

Rows have one data file, or in a partitioned table one for each partition that has rows. They stay
in the order in which they come, so each file is in the order of partition and offset. Row groups
have about 32 MiB together, so memory is bounded for any number of rows.

Importing this module does not import PyIceberg. `dead_letters.py` has the table of the dead
letters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress

import pyarrow as pa
import pyarrow.parquet as pq

from lakelog.tables.archive.refusals import RefusedRecord
from lakelog.tables.iceberg.columns import field
from lakelog.tables.iceberg.data_file import data_file
from lakelog.tables.iceberg.partition_terms import PartitionTerm, divided

PARTITIONS_MAX = 100
"""Partitions of the table that one commit may have rows of: each has a file of its own."""
_BYTES_MAX = 32 << 20


class TooManyPartitionsError(Exception):
    """A batch has rows of more partitions of the table than one commit may have."""


class RowFiles:
    """New files at the URI `path`, and beside it, created when they get their first rows.

    catalog: PyIceberg's properties, for a remote path. terms: of the table's partition spec.
    files_max: the limit of files. Methods raise `OSError`.
    """

    def __init__(
        self,
        path: str,
        schema: pa.Schema,
        catalog: Mapping[str, str],
        terms: Sequence[PartitionTerm] = (),
        files_max: int = PARTITIONS_MAX,
    ) -> None:
        self._path = path
        self._schema = schema
        self._catalog = catalog
        self._terms = terms
        self._files_max = files_max
        self._files: dict[tuple[object, ...], _RowFile] = {}
        self._bytes = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows. Raises `TooManyPartitionsError`."""
        for values, part in divided(rows, self._terms):
            file = self._files.get(values) or self._open(values)
            file.add(part)
            self._bytes += part.nbytes
        while self._bytes >= _BYTES_MAX:
            self._flush(max(self._files.values(), key=lambda file: file.waiting))

    def end_range(self) -> None:
        """End the row groups, so that each has rows of one partition of the topic."""
        for file in self._files.values():
            self._flush(file)

    def close(self) -> tuple[str, ...]:
        """Make the files durable; return their URIs."""
        self.end_range()
        for file in self._files.values():
            file.close()
        return tuple(file.path for file in self._files.values())

    def remove(self) -> None:
        """Remove the files after an error."""
        for file in self._files.values():
            file.remove()

    def _open(self, values: tuple[object, ...]) -> _RowFile:
        number = len(self._files)
        if number >= self._files_max:
            raise TooManyPartitionsError(
                f"a batch has rows of more than {self._files_max} partitions by "
                f"{','.join(map(str, self._terms))} in one task"
            )
        path = f"{self._path.removesuffix('.parquet')}-{number}.parquet" if number else self._path
        self._files[values] = _RowFile(path, self._schema, self._catalog)
        return self._files[values]

    def _flush(self, file: _RowFile) -> None:
        self._bytes -= file.waiting
        file.flush()


class _RowFile:
    """One file. waiting: the bytes of rows that are not written yet."""

    def __init__(self, path: str, schema: pa.Schema, catalog: Mapping[str, str]) -> None:
        self.path = path
        self.waiting = 0
        self._target = data_file(path, catalog)
        self._group: list[pa.RecordBatch] = []
        self._stack = ExitStack()
        file = self._stack.enter_context(self._target.writing())
        writer = pq.ParquetWriter(file, schema, compression="zstd")
        self._writer = self._stack.enter_context(writer)

    def add(self, rows: pa.RecordBatch) -> None:
        self._group.append(rows)
        self.waiting += rows.nbytes

    def flush(self) -> None:
        if self._group:
            self._writer.write_table(pa.Table.from_batches(self._group))
        self._group, self.waiting = [], 0

    def close(self) -> None:
        self._stack.close()

    def remove(self) -> None:
        with suppress(OSError):  # the disk may be full
            self._stack.close()
        self._target.remove()


DEAD_LETTER_SCHEMA = pa.schema(
    [
        field(1, "topic", pa.large_string(), nullable=False),
        field(2, "partition", pa.int32(), nullable=False),
        field(3, "offset", pa.int64(), nullable=False),
        field(4, "offsetLast", pa.int64(), nullable=False),
        field(5, "reason", pa.large_string(), nullable=False),
        field(6, "raw", pa.large_binary(), nullable=False),
    ]
)
"""The columns of the table of dead letters, as Arrow declares them; see `dead_letters.py`."""

_GROUP_BYTES = 32 << 20
_GROUP_ROWS = 10_000


class DeadLetterFile:
    """A new file at the URI `path`, created when the first dead letter is added.

    catalog: PyIceberg's properties, for a remote path. `add` and `close` raise `OSError`.
    """

    def __init__(self, path: str, catalog: Mapping[str, str]) -> None:
        self._path = path
        self._file = data_file(path, catalog)
        self._stack = ExitStack()
        self._writer: pq.ParquetWriter | None = None
        self._group: list[RefusedRecord] = []
        self._size = 0

    def add(self, refused: RefusedRecord) -> None:
        """Add a dead letter."""
        if self._writer is None:
            file = self._stack.enter_context(self._file.writing())
            writer = pq.ParquetWriter(file, DEAD_LETTER_SCHEMA, compression="zstd")
            self._writer = self._stack.enter_context(writer)
        self._group.append(refused)
        self._size += len(refused.raw)
        if self._size >= _GROUP_BYTES or len(self._group) >= _GROUP_ROWS:
            self._flush()

    def close(self) -> str | None:
        """Make the file durable; return its path, or `None` if no dead letter was added."""
        if self._writer is None:
            return None
        self._flush()
        self._stack.close()
        return self._path

    def remove(self) -> None:
        """Remove the file, if there is one, after an error."""
        if self._writer is not None:
            with suppress(OSError):  # the disk may be full
                self._stack.close()
            self._file.remove()

    def _flush(self) -> None:
        assert self._writer is not None
        columns = {
            "topic": [dead_letter.topic for dead_letter in self._group],
            "partition": [dead_letter.partition for dead_letter in self._group],
            "offset": [dead_letter.offset for dead_letter in self._group],
            "offsetLast": [dead_letter.offset_last for dead_letter in self._group],
            "reason": [dead_letter.reason for dead_letter in self._group],
            "raw": [dead_letter.raw for dead_letter in self._group],
        }
        self._writer.write_table(pa.table(columns, DEAD_LETTER_SCHEMA))
        self._group, self._size = [], 0
