"""Replaces small data files by large ones, in the order of partition and offset.

The archive commits often, so its files are small. Compaction reads the oldest small files, writes
their rows into files of the target size, and exchanges the files in one commit. The commit leaves
the progress as it is and repeats it in its summary. It requires the snapshot that it was planned
on, so it fails if another commit came first; it is repeated while all replaced files are there
(`iceberg/commits.py`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import parquet_files_to_data_files
from pyiceberg.table import FileScanTask, Table
from sqlalchemy.exc import SQLAlchemyError

from lakelog.tables.archive.history import agreed_progress
from lakelog.tables.archive.progress import property_name
from lakelog.tables.hybrid.archives import ArchivedFile, archived_file
from lakelog.tables.hybrid.rows import ArchivedRows
from lakelog.tables.iceberg.address import TableAddress, TableReplacedError
from lakelog.tables.iceberg.catalog import CatalogUnwritableError
from lakelog.tables.iceberg.commits import exchange, note_replaced, removing_new_files
from lakelog.tables.iceberg.data_file import data_file
from lakelog.tables.iceberg.stored_files import remove_unreferenced
from lakelog.tables.iceberg.table import load_for_commit
from lakelog.tables.topic.offsets import OffsetRange
from lakelog.tables.typed.columns import foreign_columns, own_schema

TARGET_BYTES = 256 << 20
FILES_MIN = 8
"""Fewer small files are not compacted: each row would be rewritten too often."""
_ROUND_BYTES = 1 << 30
_ROW_GROUP_BYTES = 32 << 20
_ALL_OFFSETS = (0, 1 << 62)


class CompactionError(Exception):
    """The table cannot be compacted; it is unchanged."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """The result of one round: the numbers of files and of bytes before and after, and of rows."""

    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    rows: int = 0

    def __add__(self, other: Compacted) -> Compacted:
        return Compacted(
            self.files_before + other.files_before,
            self.files_after + other.files_after,
            self.bytes_before + other.bytes_before,
            self.bytes_after + other.bytes_after,
            self.rows + other.rows,
        )


def compact(
    address: TableAddress,
    topic: str,
    topic_id: str,
    *,
    target_bytes: int = TARGET_BYTES,
    files_min: int = FILES_MIN,
) -> Compacted:
    """Compact the small files of a table, in rounds of about 1 GiB; return the counts.

    A file is small below three quarters of `target_bytes`. A round needs `files_min` small files of
    one partition of the table. Files that are committed meanwhile are left for the next call.
    Otherwise this call would not end beside a fast archive.

    Raises `CompactionError`, `UnknownOutcomeError`, `ProgressMismatchError`, `TableReplacedError`,
    `OSError` and the errors of the catalog.
    """
    assert files_min >= 2, "each round leaves fewer small files"
    total = Compacted()
    mine: set[str] | None = None
    while True:
        table = load_for_commit(address)
        schema = _schema(table)
        present = list(table.scan().plan_files())
        if mine is None:
            mine = {task.file.file_path for task in present}
        # New files are of the present spec, in which older files may have several partitions.
        tasks = (
            task
            for task in present
            if task.file.file_path in mine and task.file.spec_id == table.spec().spec_id
        )
        chosen = choose(tasks, target_bytes, files_min)
        if not chosen:
            return total
        made: list[str] = []
        done = _round(address, table, _Topic(topic, topic_id), chosen, schema, target_bytes, made)
        if done is None:
            return total
        mine |= set(made)
        total += done


def choose(tasks: Iterable[FileScanTask], target_bytes: int, files_min: int) -> list[FileScanTask]:
    """Return the small files of the next round, of one partition of the table, oldest first."""
    groups: dict[str, list[FileScanTask]] = {}
    for task in tasks:
        if task.file.file_size_in_bytes < target_bytes * 3 // 4 or task.delete_files:
            groups.setdefault(repr(task.file.partition), []).append(task)
    for group in groups.values():
        if len(group) >= files_min:
            group.sort(key=lambda task: archived_file(task).offsets)
            taken, size = 0, 0
            for task in group:
                taken, size = taken + 1, size + task.file.file_size_in_bytes
                if size >= _ROUND_BYTES:
                    break
            return group[: max(taken, 2)]
    return []


@dataclass(frozen=True, slots=True)
class _Topic:
    name: str
    topic_id: str


def _round(
    address: TableAddress,
    table: Table,
    topic: _Topic,
    tasks: Sequence[FileScanTask],
    schema: pa.Schema,
    target_bytes: int,
    made: list[str],
) -> Compacted | None:
    """Replace the files of `tasks`; return `None` if another program replaced them meanwhile.

    made: gets the path of each new file before it is written.
    """
    files = [archived_file(task) for task in tasks]
    with removing_new_files(address, made):
        rows = _write(table, topic.name, files, schema, target_bytes, address.catalog, made)
        if not any(task.delete_files for task in tasks):
            expected = sum(task.file.record_count for task in tasks)
            if rows != expected:
                raise CompactionError(f"read {rows} rows of {expected}: the files were not changed")
        old = [task.file for task in tasks]
        note_replaced(table, address.catalog, [file.file_path for file in old])
        is_done = exchange(
            address,
            tasks,
            lambda table: parquet_files_to_data_files(table.io, table.metadata, iter(made)),
            lambda table: _progress_entry(table, topic.topic_id),
        )
    if not is_done:
        remove_unreferenced(address.load(), made)
        return None
    before = sum(file.file_size_in_bytes for file in old)
    current = address.load().scan().plan_files()
    after = sum(task.file.file_size_in_bytes for task in current if task.file.file_path in made)
    return Compacted(len(old), len(made), before, after, rows)


def _progress_entry(table: Table, topic_id: str) -> Mapping[str, str]:
    """Return the progress, which stays. Raises `ProgressMismatchError`."""
    return {property_name(topic_id): agreed_progress(table, topic_id).to_text()}


def _write(
    table: Table,
    topic: str,
    files: Sequence[ArchivedFile],
    schema: pa.Schema,
    target_bytes: int,
    catalog: Mapping[str, str],
    made: list[str],
) -> int:
    """Write the rows of the files, ordered by partition and offset; return their number.

    made: gets the path of each new file before it is written. A file may exceed the target by a row
    group.
    """
    source = _ordered(topic, files, schema, catalog)
    rows = 0
    batch = next(source, None)
    while batch is not None:
        path = f"{table.location()}/data/compacted-{uuid.uuid4().hex}.parquet"
        made.append(path)
        with (
            data_file(path, catalog).writing() as file,
            pq.ParquetWriter(file, schema, compression="zstd") as writer,
        ):
            while batch is not None and file.tell() < target_bytes:
                group, batch = _row_group(batch, source)
                rows += group.num_rows
                writer.write_table(group)
    return rows


def _row_group(
    first: pa.RecordBatch, source: Iterator[pa.RecordBatch]
) -> tuple[pa.Table, pa.RecordBatch | None]:
    """Return a row group of one partition of the topic, and the first batch after it."""
    batches, size = [first], first.nbytes
    partition = first.column("partition")[0]
    following = next(source, None)
    while (
        following is not None
        and size < _ROW_GROUP_BYTES
        and following.column("partition")[0] == partition
    ):
        batches.append(following)
        size += following.nbytes
        following = next(source, None)
    return pa.Table.from_batches(batches), following


def _ordered(
    topic: str, files: Sequence[ArchivedFile], schema: pa.Schema, catalog: Mapping[str, str]
) -> Iterator[pa.RecordBatch]:
    reader = ArchivedRows(schema, catalog, null_timestamps=True, hint="")
    first = min(file.partitions[0] for file in files)
    last = max(file.partitions[1] for file in files)
    if first < 0:
        raise CompactionError("a data file has no bounds of its partitions")
    for partition in range(first, last + 1):
        for batch in reader.read(OffsetRange(topic, partition, *_ALL_OFFSETS), files):
            yield batch.select(range(1, batch.num_columns))


def _schema(table: Table) -> pa.Schema:
    """Return the schema of new files. Raises `CompactionError` for columns of other programs."""
    others = foreign_columns(table)
    if not others:
        try:
            return own_schema(table)
        except ValueError as error:
            raise CompactionError(str(error)) from error
    raise CompactionError(
        f"the table {'.'.join(table.name())} has the column {min(others)!r} of another program, "
        "which would be lost: compact it with that program"
    )


UNCHANGED = (
    CompactionError,
    TableReplacedError,
    CommitFailedException,
    CatalogUnwritableError,
    SQLAlchemyError,
    OSError,
)
"""The upkeep failed, or another program changed the table first."""
