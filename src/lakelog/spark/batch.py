"""Batch reads: a snapshot of offsets is planned once, tasks read their ranges of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from lakelog.client.isolation import Batch
from lakelog.spark.broker import Broker
from lakelog.spark.columns import ArrowRows, arrow_schema
from lakelog.spark.continuation import continue_from
from lakelog.spark.errors import DataLossError, LogReplacedError, OptionError, TopicMissingError
from lakelog.spark.losses import report_loss
from lakelog.spark.offsets import StreamOffset
from lakelog.spark.options import SourceOptions
from lakelog.spark.planning import OffsetRange, identified, ranges_between, split_ranges
from lakelog.spark.positions import find_topics, resolve

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_WAY_ON = (
    "Set the option impossibleTimestamps=null to read such a timestamp as null, with its number in "
    "the column rawTimestamp"
)


class RangePartition(InputPartition):  # type: ignore[misc]
    """What one task reads; `None` stands for nothing, as when a topic is empty."""

    def __init__(self, value: OffsetRange | None) -> None:
        super().__init__(value)
        self.value: OffsetRange | None = value


class BatchReader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[RangePartition]:
        options = self._options
        with open_broker(options) as broker:
            found = find_topics(broker, options.subscription).complete()
            start = resolve(
                broker,
                options.starting,
                found,
                latest_if_no_timestamp=options.latest_if_no_timestamp,
            )
            end = resolve(broker, options.ending, found)
            if isinstance(options.starting, StreamOffset):
                continuation = continue_from(
                    broker, start, end, fail_on_data_loss=options.fail_on_data_loss
                )
                start, end = continuation.start, continuation.end
        return plan(start, end, options)

    def read(self, partition: RangePartition) -> Iterator[pa.RecordBatch]:
        return read_range(self._options, self._schema, partition.value)


def plan(start: StreamOffset, end: StreamOffset, options: SourceOptions) -> list[RangePartition]:
    """One task for each range, or a single one that reads nothing."""
    ranges = identified(ranges_between(start.offsets, end.offsets), end)
    pieces = split_ranges(ranges, options.partitions_min)
    return [RangePartition(each) for each in pieces] or [RangePartition(None)]


def open_broker(options: SourceOptions) -> Broker:
    """What a query reads from."""
    return Broker(
        options.bootstrap, client_id=options.client_id, read_committed=options.read_committed
    )


def read_range(
    options: SourceOptions, schema: StructType, wanted: OffsetRange | None
) -> Iterator[pa.RecordBatch]:
    """Every record of the range.

    Raises `DataLossError` when some are gone, or go while this reads, and that is not allowed.
    """
    if wanted is None:
        return
    rows = ArrowRows(arrow_schema(schema), null_timestamps=options.null_timestamps, way_on=_WAY_ON)
    with open_broker(options) as broker:
        reading = _Reading(broker, wanted, fail=options.fail_on_data_loss)
        while reading.find_remaining():
            yield from rows.convert(reading.remaining, reading.batches())


class _Reading:
    """A range that is read until its end, or what there is of it.

    A loss ends `batches` after what was read before it. The next `find_remaining` determines what
    is left.
    """

    def __init__(self, broker: Broker, wanted: OffsetRange, *, fail: bool) -> None:
        self._broker = broker
        self._wanted = wanted
        self._fail = fail
        self._loss: DataLossError | None = None
        self.remaining = wanted

    def batches(self) -> Iterator[Batch]:
        self._loss = None
        position = self.remaining.start
        try:
            for header, batch in self._broker.batches(self.remaining):
                yield header, batch
                position = header.last_offset + 1
            position = self._wanted.end
        except LogReplacedError as error:
            position = self._wanted.end
            self._lost(str(error))
        except DataLossError as error:
            self._loss = error
        self.remaining = replace(self.remaining, start=position)

    def find_remaining(self) -> bool:
        """Whether the log holds any of what is left, which is then `remaining`.

        Raises `DataLossError` for what it does not hold, unless that is allowed, and `OptionError`
        for records that may not be read yet.
        """
        left = self.remaining
        if left.size <= 0:
            return False
        try:
            self.remaining = self._still_there(left)
        except (DataLossError, TopicMissingError) as error:
            self._lost(f"{left}: {error}")
            return False
        if self._loss is not None and self.remaining == left:
            raise self._loss
        return self.remaining.size > 0

    def _still_there(self, left: OffsetRange) -> OffsetRange:
        meta = self._broker.describe([left.topic])[left.topic]
        if left.topic_id and meta.topic_id != left.topic_id:
            raise DataLossError("the topic was deleted and created again")
        partition = (left.topic, left.partition)
        first = self._broker.earliest([partition])[partition]
        readable_end = self._broker.latest([partition])[partition]
        end = readable_end
        if readable_end < left.end:
            end = self._broker.log_end([partition])[partition]
        if readable_end < left.end <= end:
            raise OptionError(
                f"{left}: the transaction at offset {readable_end} is still open. Read again when "
                "it has ended, or set the option kafka.isolation.level=read_uncommitted"
            )
        if first > left.start or end < left.end:
            self._lost(f"{left}: the log holds only [{first}, {end})")
        return replace(left, start=max(first, left.start), end=min(end, left.end))

    def _lost(self, what: str) -> None:
        report_loss(what, fail=self._fail)
