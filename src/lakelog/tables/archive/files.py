"""The data files of a batch: the driver chooses their schema, and each task writes one.

A task reads ranges of offsets. Records that cannot be rows of the table end the task, are left out,
or go to a second file, for dead letters. Rows are written in groups of about 32 MiB: ranges of any
size take bounded memory.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from lakelog.base.events import event
from lakelog.tables.archive.planner import lost_before
from lakelog.tables.archive.progress import ArchiveJob
from lakelog.tables.archive.refusals import (
    KEY,
    OnBadRecord,
    Refusals,
    RefusedRecord,
    RowFilter,
    stop,
)
from lakelog.tables.iceberg.columns import PartitionTerm, divided, parse_terms
from lakelog.tables.iceberg.columns import field as arrow_field
from lakelog.tables.iceberg.data_file import data_file
from lakelog.tables.registry.schemas import RegistryFitter, Schemas, registered_shapes, schemas_of
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.topic.errors import DataLossError, RecordsRemovedError
from lakelog.tables.topic.offsets import OffsetRange
from lakelog.tables.topic.rows import OnLoss, Reading
from lakelog.tables.typed.rows import BatchSource, TypedRows, data_type, sampled_shape, untyped
from lakelog.tables.typed.shapes import Shape

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
        arrow_field(1, "topic", pa.large_string(), nullable=False),
        arrow_field(2, "partition", pa.int32(), nullable=False),
        arrow_field(3, "offset", pa.int64(), nullable=False),
        arrow_field(4, "offsetLast", pa.int64(), nullable=False),
        arrow_field(5, "reason", pa.large_string(), nullable=False),
        arrow_field(6, "raw", pa.large_binary(), nullable=False),
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


_HINT = (
    f"Set the topic's key {KEY} to dead-letter or skip, or repeat with --errors: the record is "
    "then a row without fields, and its column rescued has the reason"
)


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """The result of a task.

    paths: the URIs of the files; none if the ranges had no rows. skipped: offsets that were lost.
    unknown: the shapes of values that did not fit the typed columns. refusals: records that
    cannot be rows. dead_letters: the URI of their file; `None` without any.
    """

    paths: tuple[str, ...]
    rows: int
    skipped: list[OffsetRange]
    unknown: list[Shape] = field(default_factory=list)
    refusals: Refusals = field(default_factory=Refusals)
    dead_letters: str | None = None


def write_ranges(
    job: ArchiveJob,
    ranges: Sequence[OffsetRange],
    schema: pa.Schema,
    name: str,
    files_max: int = PARTITIONS_MAX,
) -> WrittenFiles:
    """Write all records of `ranges` to a new file of the job's table, or to several.

    schema: of the file, as `file_schema` returns it. name: of the first file, and of that for dead
    letters. files_max: the limit of files, in a partitioned table.

    Raises `DataLossError` if the log no longer holds a whole range, unless the job skips lost
    records and retention removed these; `BadRecordError` for a record that cannot be a row, if the
    job stops at such; `TooManyPartitionsError`; `RegistryUnavailableError` and
    `RegistryAccessError`; and `KafkaError`. The files are removed after any error.
    """
    errors = OnBadRecord(job.errors)
    terms = parse_terms(job.partition_by)
    files = RowFiles(f"{job.location}/data/{name}", schema, job.catalog, terms, files_max)
    dead_letters = DeadLetterFile(f"{job.dead_letters_location}/data/{name}", job.catalog)
    refusals = Refusals()
    refuse = stop if errors is OnBadRecord.STOP else partial(_note, refusals, errors, dead_letters)
    rows = 0
    skipped: list[OffsetRange] = []
    typed = TypedRows(schema, _fitter(job, schema))
    row_filter = RowFilter(untyped(schema), refuse)
    on_loss = policy(skipped if job.skip_lost else None)
    try:
        # The row filter decides about damaged batches.
        with TopicClient(job.bootstrap, client_id="lakelog-archive", keep_damaged=True) as client:
            for offset_range in ranges:
                rows += _copy(Reading(client, offset_range, on_loss), row_filter, typed, files)
        paths, dead_letters_written = files.close(), dead_letters.close()
    except BaseException:
        files.remove()
        dead_letters.remove()
        raise
    return WrittenFiles(paths, rows, skipped, typed.unknown, refusals, dead_letters_written)


def _fitter(job: ArchiveJob, schema: pa.Schema) -> RegistryFitter | None:
    """Return the converter of values with schemas of a registry; `None` for JSON."""
    if job.registry is None:
        return None
    return RegistryFitter(
        schemas_of(job.registry),
        data_type(schema),
        is_strict=OnBadRecord(job.errors) is OnBadRecord.STOP,
        hint=_HINT,
        without_ids=job.schema_without_ids,
    )


def _note(
    refusals: Refusals, errors: OnBadRecord, dead_letters: DeadLetterFile, refused: RefusedRecord
) -> None:
    refusals.add(refused, errors)
    if errors is OnBadRecord.DEAD_LETTER:
        dead_letters.add(refused)


def _copy(reading: Reading, row_filter: RowFilter, typed: TypedRows, files: RowFiles) -> int:
    count = 0
    while reading.find_remaining():
        for batch in row_filter.convert(reading.remaining, reading.batches()):
            count += batch.num_rows
            files.add(typed.complete(batch))
    files.end_range()
    return count


def policy(skipped: list[OffsetRange] | None) -> OnLoss:
    """Return the callback for lost offsets: it raises an error, or adds them to `skipped`.

    Only offsets that retention removed can be skipped. After other losses the job plans the batch
    again. The returned function raises `DataLossError`.
    """

    def on_loss(lost: OffsetRange, error: DataLossError) -> None:
        if not isinstance(error, RecordsRemovedError):
            raise error
        if skipped is None:
            raise DataLossError(lost_before([str(lost)]))
        skipped.append(lost)

    return on_loss


_log = logging.getLogger("lakelog.tables")


def file_schema(
    job: ArchiveJob, source: BatchSource, tasks: Iterable[Sequence[OffsetRange]]
) -> pa.Schema:
    """Return the schema for the files of a batch; add new fields of values to the table.

    Fields are inferred from samples of the ranges, or from the schemas that the samples name.
    Raises `ValueError` if the table has foreign columns of the same names,
    `TableReplacedError`, `RegistryUnavailableError`, `RegistryAccessError`, `KafkaError` and the
    errors of the catalog.
    """
    ranges = [offset_range for ranges in tasks for offset_range in ranges]
    if job.registry is not None:
        shapes = _registered(job, schemas_of(job.registry), source, ranges)
    elif job.is_json:
        shapes = [sampled_shape(source, ranges)]
    else:
        return job.schema
    from lakelog.tables.typed.columns import widen

    schema = job.schema
    for column in widen(job.address, shapes):
        schema = schema.append(column)
    return schema


def _registered(
    job: ArchiveJob, schemas: Schemas, source: BatchSource, ranges: Sequence[OffsetRange]
) -> list[Shape]:
    if job.schema_without_ids is not None:
        return [schemas.get(job.schema_without_ids).shape]
    return registered_shapes(schemas, source, ranges)


def add_unknown(job: ArchiveJob, shapes: Iterable[Shape]) -> None:
    """Add fields that tasks found beyond the samples to the table, for later batches.

    Errors are logged, not raised: the batch is already committed, and the fields will be found
    again.
    """
    seen = [shape for shape in shapes if shape.fields]
    if not (job.is_json or job.registry) or not seen:
        return
    from lakelog.tables.typed.columns import widen

    try:
        widen(job.address, seen)
    except Exception as error:  # noqa: BLE001 - a concurrent commit, or a busy catalog or store
        _log.info(
            "new fields of %r are added later: %s",
            job.topic,
            error,
            extra=event("archive_fields_delayed", topic=job.topic),
        )
