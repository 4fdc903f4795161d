"""Batch queries: the driver plans ranges of offsets once, and tasks read them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from lakelog.spark.schema import arrow_schema
from lakelog.spark.source.continuation import continue_from
from lakelog.spark.source.losses import report_loss
from lakelog.spark.source.options import SourceOptions
from lakelog.spark.source.positions import find_topics, resolve
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.topic.errors import DataLossError
from lakelog.tables.topic.offsets import StreamOffset
from lakelog.tables.topic.ranges import OffsetRange, identified, ranges_between, split_ranges
from lakelog.tables.topic.reading import Reading
from lakelog.tables.topic.rows import ArrowRows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_WAY_ON = (
    "Set the option impossibleTimestamps=null to read such a timestamp as null, with its number in "
    "the column rawTimestamp"
)


class RangePartition(InputPartition):  # type: ignore[misc]
    """The range that one task reads; `None` if there is nothing to read."""

    def __init__(self, value: OffsetRange | None) -> None:
        super().__init__(value)
        self.value: OffsetRange | None = value


class BatchReader(DataSourceReader):  # type: ignore[misc]
    """A query of the records between two positions."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[RangePartition]:
        options = self._options
        with open_client(options) as client:
            found = find_topics(client, options.subscription).complete()
            start = resolve(
                client,
                options.starting,
                found,
                latest_if_no_timestamp=options.latest_if_no_timestamp,
            )
            end = resolve(client, options.ending, found)
            if isinstance(options.starting, StreamOffset):
                continuation = continue_from(
                    client, start, end, fail_on_data_loss=options.fail_on_data_loss
                )
                start, end = continuation.start, continuation.end
        return plan(start, end, options)

    def read(self, partition: RangePartition) -> Iterator[pa.RecordBatch]:
        return read_range(self._options, self._schema, partition.value)


def plan(start: StreamOffset, end: StreamOffset, options: SourceOptions) -> list[RangePartition]:
    """Return one task per range, or a single task without a range.

    Spark cannot run a query without tasks.
    """
    ranges = identified(ranges_between(start.offsets, end.offsets), end)
    pieces = split_ranges(ranges, options.partitions_min)
    return [RangePartition(each) for each in pieces] or [RangePartition(None)]


def open_client(options: SourceOptions) -> TopicClient:
    """Return the client of a query's cluster.

    Raises `AddressError` for a malformed address.
    """
    return TopicClient(
        options.bootstrap, client_id=options.client_id, read_committed=options.read_committed
    )


def read_range(
    options: SourceOptions, schema: StructType, wanted: OffsetRange | None
) -> Iterator[pa.RecordBatch]:
    """Yield the records of the range.

    Raises `DataLossError` if records are lost before or during the read and the query does not
    accept that, `BadRecordError`, and `KafkaError`.
    """
    if wanted is None:
        return
    rows = ArrowRows(arrow_schema(schema), null_timestamps=options.null_timestamps, way_on=_WAY_ON)

    def on_loss(_: OffsetRange, error: DataLossError) -> None:
        report_loss(str(error), fail=options.fail_on_data_loss)

    with open_client(options) as client:
        reading = Reading(client, wanted, on_loss)
        while reading.find_remaining():
            yield from rows.convert(reading.remaining, reading.batches())
