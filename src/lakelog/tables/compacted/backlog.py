"""Reads the rows of the archive's table that the table of newest records does not have yet.

A `Spill` keeps them on the local disk, by the bucket of their keys. A bucket's rows are read back
together, and one bucket at a time. The files have no name, so the operating system removes them
when the process ends, even by a kill.

A `BucketMerge` writes the new file of a bucket. The present rows pass through memory one row group
at a time; the new rows are in memory together. A new row with a null value is a tombstone: the key
has no row afterwards. `newest` keeps the newest row of each key by Arrow's functions, without I/O.
Rows of one partition are in the order of their offsets. If a key occurs in several partitions, the
newest rows of the partitions are compared by timestamp, then by partition. The timestamps within
one partition do not matter: producers set them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakelog.base.closeable import Closeable
from lakelog.tables.archive.files import RowFiles
from lakelog.tables.compacted.table import by_bucket
from lakelog.tables.hybrid.archives import TopicArchive, files_of
from lakelog.tables.hybrid.client import read_archived
from lakelog.tables.hybrid.rows import ArchivedRows
from lakelog.tables.iceberg.data_file import open_input
from lakelog.tables.topic.offsets import OffsetRange
from lakelog.tables.typed.columns import own_schema

ORDERED_BY = ("key", "partition", "offset", "timestamp")
"""The columns that decide which row is the newest. Keys are not null."""
_AT = "lakelog.at"
_LEAST = -(1 << 63)


def newest(rows: pa.Table) -> pa.Table:
    """Return the newest row of each key, in the order of the keys."""
    last = last_of_partitions(rows)
    if pc.count_distinct(last.column("partition")).as_py() > 1:
        last = last.take(_last(last, ["key"], ["timestamp", "partition", "offset"]))
    return by_key(last)


def last_of_partitions(rows: pa.Table) -> pa.Table:
    """Return the row with the greatest offset of each key and partition."""
    rows = rows.combine_chunks()  # rows of one chunk are taken several times faster
    return rows.take(_last(rows, ["key", "partition"], ["partition", "offset"]))


def by_key(rows: pa.Table) -> pa.Table:
    """Return the rows in the order of their keys."""
    rows = rows.combine_chunks()
    return rows.take(pc.sort_indices(rows, sort_keys=[("key", "ascending")]))


def _last(rows: pa.Table, keys: list[str], order: list[str]) -> pa.Array:
    """Return the positions of the last row of each group of `keys`, in this order of columns.

    A null, which is a timestamp outside of the table's years, is before all others.
    """
    numbers = {name: pc.fill_null(rows.column(name).cast(pa.int64()), _LEAST) for name in order}
    sort_keys = [(name, "ascending") for name in order]
    positions = pc.sort_indices(pa.table(numbers), sort_keys=sort_keys)
    ranks = pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), len(positions)))
    ordered = rows.select(keys).take(positions).append_column(_AT, ranks)
    groups = ordered.group_by(keys).aggregate([(_AT, "max")])
    return positions.take(pc.subtract(groups.column(f"{_AT}_max"), 1))


_BATCH_BYTES = 32 << 20
_IS_NEW = "lakelog.is_new"


@dataclass(frozen=True, slots=True)
class BucketMerge:
    """The merge of one bucket.

    present: the paths of its files. schema: of the table's files. catalog: PyIceberg's properties,
    for remote files.
    """

    present: Sequence[str]
    schema: pa.Schema
    catalog: Mapping[str, str]

    def winners(self, rows: pa.Table) -> pa.Table:
        """Return the rows that change the bucket: newest of their keys, also in the table.

        A tombstone of a key without a row changes nothing. Raises `FileNotFoundError` and
        `OSError`.
        """
        new = newest(rows)
        keys = new.column("key").combine_chunks()
        matching = [
            part.filter(pc.is_in(part.column("key"), value_set=keys))
            for part in self.rows(list(ORDERED_BY))
        ]
        columns = new.select(list(ORDERED_BY))
        current = pa.concat_tables([columns.slice(0, 0).cast(_narrow(self.schema)), *matching])
        both = pa.concat_tables(
            [
                columns.cast(current.schema).append_column(_IS_NEW, _repeated(True, new.num_rows)),
                current.append_column(_IS_NEW, _repeated(False, current.num_rows)),
            ]
        )
        best = newest(both)
        won = best.filter(best.column(_IS_NEW)).column("key").combine_chunks()
        new = new.filter(pc.is_in(new.column("key"), value_set=won))
        has_row = pc.is_in(new.column("key"), value_set=current.column("key").combine_chunks())
        return new.filter(pc.or_(pc.is_valid(new.column("value")), has_row))

    def write(self, winners: pa.Table, path: str) -> tuple[str, ...]:
        """Write the bucket's rows; return the path, or nothing if no row is left.

        winners: as `winners` returns them. Raises `OSError`; no file remains then.
        """
        files = RowFiles(path, self.schema, self.catalog)
        try:
            for rows in self._merged(winners):
                step = max(1, rows.num_rows * _BATCH_BYTES // max(1, rows.nbytes))
                for batch in rows.combine_chunks().to_batches(step):
                    files.add(batch)
            return files.close()
        except BaseException:
            files.remove()
            raise

    def _merged(self, winners: pa.Table) -> Iterator[pa.Table]:
        """Yield the rows in the order of their keys, if the present file has this order."""
        replaced = winners.column("key").combine_chunks()
        live = fitted(winners.filter(pc.is_valid(winners.column("value"))), self.schema)
        for part in self.rows(self.schema.names):
            last = part.column("key")[-1]
            count = pc.sum(pc.less_equal(live.column("key"), last)).as_py() or 0
            kept = part.filter(pc.invert(pc.is_in(part.column("key"), value_set=replaced)))
            yield by_key(pa.concat_tables([kept, live.slice(0, count)]))
            live = live.slice(count)
        yield live

    def rows(self, names: list[str]) -> Iterator[pa.Table]:
        """Yield the row groups of the present files."""
        schema = pa.schema([self.schema.field(name) for name in names])
        for path in self.present:
            with open_input(path, self.catalog) as source, pq.ParquetFile(source) as file:
                has = [name for name in names if name in file.schema_arrow.names]
                for number in range(file.num_row_groups):
                    rows = file.read_row_group(number, columns=has)
                    if rows.num_rows:
                        yield fitted(rows, schema)


def fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows with the columns of a schema; nulls for columns that they lack."""
    arrays = [
        rows.column(field.name).cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _narrow(schema: pa.Schema) -> pa.Schema:
    return pa.schema([schema.field(name) for name in ORDERED_BY])


def _repeated(value: bool, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value), count)


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
