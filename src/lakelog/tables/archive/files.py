"""The work of one task: read ranges of offsets, write one Parquet file.

Rows are written in groups of about 32 MiB, so memory is bounded for ranges of any size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

from lakelog.tables.archive.partitions import lost_before
from lakelog.tables.iceberg.data_file import data_file
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.topic.errors import DataLossError, RecordsRemovedError
from lakelog.tables.topic.ranges import OffsetRange
from lakelog.tables.topic.reading import OnLoss, Reading
from lakelog.tables.topic.rows import ArrowRows
from lakelog.tables.typed.rows import TypedRows, untyped
from lakelog.tables.typed.shapes import Shape

_ROW_GROUP_BYTES = 32 << 20
_WAY_ON = (
    "Repeat with --null-timestamps to archive such a timestamp as null, with its number in the "
    "column rawTimestamp"
)


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a task.

    path: the file's URI; `None` if the ranges had no records. skipped: offsets that were lost.
    unknown: the shape of JSON values that did not fit the typed columns.
    """

    path: str | None
    rows: int
    skipped: list[OffsetRange]
    unknown: Shape = field(default_factory=lambda: Shape("struct"))


def write_ranges(
    bootstrap: str,
    ranges: Sequence[OffsetRange],
    schema: pa.Schema,
    path: str,
    catalog: Mapping[str, str],
    *,
    skip_lost: bool,
) -> Written:
    """Write all records of `ranges` to a new file at the URI `path`.

    catalog: PyIceberg's properties, for a remote path. Raises `DataLossError` if the log no longer
    holds a whole range, unless `skip_lost` is set and retention removed the records;
    `BadRecordError` for a damaged batch or an impossible timestamp; and `KafkaError`. The file is
    removed after any error, and if it has no rows.
    """
    target = data_file(path, catalog)
    rows = 0
    skipped: list[OffsetRange] = []
    typed = TypedRows(schema)
    on_loss = policy(skipped if skip_lost else None)
    try:
        with (
            target.writing() as file,
            pq.ParquetWriter(file, schema, compression="zstd") as writer,
            TopicClient(bootstrap, client_id="lakelog-archive") as client,
        ):
            for each in ranges:
                rows += _copy(Reading(client, each, on_loss), _rows(schema), typed, writer)
    except BaseException:
        target.remove()
        raise
    if rows == 0:
        target.remove()
    return Written(path if rows else None, rows, skipped, typed.unknown)


def _rows(schema: pa.Schema) -> ArrowRows:
    nullable = schema.field("timestamp").nullable
    return ArrowRows(untyped(schema), null_timestamps=nullable, way_on=_WAY_ON)


def _copy(reading: Reading, rows: ArrowRows, typed: TypedRows, writer: pq.ParquetWriter) -> int:
    count = 0
    group: list[pa.RecordBatch] = []
    while reading.find_remaining():
        for untyped_batch in rows.convert(reading.remaining, reading.batches()):
            batch = typed.complete(untyped_batch)
            count += batch.num_rows
            group.append(batch)
            if sum(each.nbytes for each in group) >= _ROW_GROUP_BYTES:
                writer.write_table(pa.Table.from_batches(group))
                group = []
    if group:
        writer.write_table(pa.Table.from_batches(group))
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
