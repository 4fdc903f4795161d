"""What a task of the archive does: read offset ranges, write one Parquet file.

Rows go through in batches, so memory stays bounded whatever the size of the ranges. A file is
synced before the task reports it, for the table's commit will promise that it is there.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from lakelog.spark.broker import Broker
from lakelog.spark.columns import ArrowRows
from lakelog.spark.errors import DataLossError
from lakelog.spark.planning import OffsetRange

_ROW_GROUP_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class WrittenFile:
    path: str
    rows: int


def write_ranges(
    bootstrap: str,
    ranges: Sequence[OffsetRange],
    schema: pa.Schema,
    path: str,
    *,
    skip_lost: bool,
) -> WrittenFile | None:
    """Writes every record of `ranges` to the new local file `path`; `None` if there are none.

    Raises `DataLossError` when the log no longer holds all of a range, unless `skip_lost`. The
    file is removed again when anything fails.
    """
    target = Path(urlsplit(path).path)
    target.parent.mkdir(parents=True, exist_ok=True)
    rows = 0
    try:
        with target.open("xb") as file:
            with (
                pq.ParquetWriter(file, schema, compression="zstd") as writer,
                Broker(bootstrap, client_id="lakelog-archive") as broker,
            ):
                for each in ranges:
                    rows += _copy(broker, each, ArrowRows(schema), writer, skip_lost=skip_lost)
            file.flush()
            os.fsync(file.fileno())
        _sync_folder(target.parent)
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    if rows == 0:
        target.unlink()
        return None
    return WrittenFile(path, rows)


def _copy(
    broker: Broker, each: OffsetRange, rows: ArrowRows, writer: pq.ParquetWriter, *, skip_lost: bool
) -> int:
    start = _first_left(broker, each, skip_lost=skip_lost)
    count = 0
    group: list[pa.RecordBatch] = []
    chunks = broker.read(each.topic, each.partition, start, each.end, topic_id=each.topic_id)
    for batch in rows.convert(each.topic, each.partition, chunks):
        count += batch.num_rows
        group.append(batch)
        if sum(each.nbytes for each in group) >= _ROW_GROUP_BYTES:
            writer.write_table(pa.Table.from_batches(group))
            group = []
    if group:
        writer.write_table(pa.Table.from_batches(group))
    return count


def _first_left(broker: Broker, each: OffsetRange, *, skip_lost: bool) -> int:
    meta = broker.describe([each.topic])[each.topic]
    if meta.topic_id != each.topic_id:
        raise DataLossError(f"{each}: the topic was deleted and created again")
    partition = (each.topic, each.partition)
    first = broker.earliest([partition])[partition]
    if first > each.start and not skip_lost:
        raise DataLossError(
            f"{each}: retention removed the offsets before {first} before they were archived"
        )
    return int(min(max(first, each.start), each.end))


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
