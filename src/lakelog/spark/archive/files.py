"""What a task of the archive does: read offset ranges, write one Parquet file.

Rows go through in batches, so memory stays bounded whatever the size of the ranges.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.parquet as pq

from lakelog.client.isolation import Batch
from lakelog.spark.archive.data_file import data_file
from lakelog.spark.archive.partitions import lost_before
from lakelog.spark.broker import Broker
from lakelog.spark.columns import ArrowRows
from lakelog.spark.errors import DataLossError, LogReplacedError, TopicGoneError
from lakelog.spark.planning import OffsetRange

_ROW_GROUP_BYTES = 32 << 20
_WAY_ON = (
    "Repeat with --null-timestamps to archive such a timestamp as null, with its number in the "
    "column rawTimestamp"
)


@dataclass(frozen=True, slots=True)
class WrittenFile:
    path: str
    rows: int


def write_ranges(
    bootstrap: str,
    ranges: Sequence[OffsetRange],
    schema: pa.Schema,
    path: str,
    catalog: Mapping[str, str],
    *,
    skip_lost: bool,
) -> WrittenFile | None:
    """Writes every record of `ranges` to the new file `path`, a URI; `None` if there are none.

    `catalog` holds PyIceberg's properties, for a path that is not on this machine. Raises
    `DataLossError` when the log no longer holds all of a range, unless `skip_lost`. The file is
    removed again when anything fails, or nothing is in it.
    """
    target = data_file(path, catalog)
    rows = 0
    try:
        with (
            target.writing() as file,
            pq.ParquetWriter(file, schema, compression="zstd") as writer,
            Broker(bootstrap, client_id="lakelog-archive") as broker,
        ):
            for each in ranges:
                rows += _copy(broker, each, _rows(schema), writer, skip_lost=skip_lost)
    except BaseException:
        target.remove()
        raise
    if rows == 0:
        target.remove()
        return None
    return WrittenFile(path, rows)


def _rows(schema: pa.Schema) -> ArrowRows:
    nullable = schema.field("timestamp").nullable
    return ArrowRows(schema, null_timestamps=nullable, way_on=_WAY_ON)


def _copy(
    broker: Broker, each: OffsetRange, rows: ArrowRows, writer: pq.ParquetWriter, *, skip_lost: bool
) -> int:
    reading = _Reading(broker, each, skip_lost=skip_lost)
    count = 0
    group: list[pa.RecordBatch] = []
    while reading.find_remaining():
        for batch in rows.convert(reading.remaining, reading.batches()):
            count += batch.num_rows
            group.append(batch)
            if sum(each.nbytes for each in group) >= _ROW_GROUP_BYTES:
                writer.write_table(pa.Table.from_batches(group))
                group = []
    if group:
        writer.write_table(pa.Table.from_batches(group))
    return count


class _Reading:
    """A range that is read to its end. Retention may remove some of it before or meanwhile.

    A loss ends `batches`. The next `find_remaining` skips what is gone with `skip_lost`, and raises
    otherwise.
    """

    def __init__(self, broker: Broker, wanted: OffsetRange, *, skip_lost: bool) -> None:
        self._broker = broker
        self._skip_lost = skip_lost
        self._loss: DataLossError | None = None
        self.remaining = wanted

    def find_remaining(self) -> bool:
        """Whether anything of the range is left to read.

        Raises `DataLossError`, and `LogReplacedError` if the log ends before the range does.
        """
        left = self.remaining
        if left.size == 0:
            return False
        meta = self._broker.describe([left.topic])[left.topic]
        if meta.topic_id != left.topic_id:
            raise TopicGoneError(f"{left}: the topic was deleted and created again")
        partition = (left.topic, left.partition)
        first = min(max(self._broker.earliest([partition])[partition], left.start), left.end)
        if first > left.start and not self._skip_lost:
            raise DataLossError(
                lost_before([f"{left.topic}-{left.partition} [{left.start}, {first})"])
            )
        if self._loss is not None and first == left.start:
            end = self._broker.log_end([partition])[partition]
            if end < left.end:
                raise LogReplacedError(f"{left}: the log was cut and ends at {end}")
            raise self._loss
        self.remaining = replace(left, start=first)
        return first < left.end

    def batches(self) -> Iterator[Batch]:
        """What `remaining` holds, which begins after it then."""
        self._loss = None
        left = self.remaining
        position = left.start
        try:
            for header, batch in self._broker.batches(left):
                yield header, batch
                position = min(header.last_offset + 1, left.end)
            position = left.end
        except (TopicGoneError, LogReplacedError):
            raise
        except DataLossError as error:
            self._loss = error
        self.remaining = replace(left, start=position)
