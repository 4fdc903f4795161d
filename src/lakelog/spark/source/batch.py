"""Batch queries: the driver plans ranges of offsets once, and tasks read them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from lakelog.spark.expected_errors import without_traceback
from lakelog.spark.source.clients import open_planner
from lakelog.spark.source.continuation import continue_from
from lakelog.spark.source.joined import planned, read_planned
from lakelog.spark.source.options import SourceOptions
from lakelog.spark.source.positions import find_topics, resolve
from lakelog.spark.source.pruning import Pruning
from lakelog.tables.joined.files import ANY_TIME, Times
from lakelog.tables.joined.plan import PlannedRange
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.topic.offsets import StreamOffset
from lakelog.tables.topic.ranges import identified, ranges_between, split_ranges

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class RangePartition(InputPartition):  # type: ignore[misc]
    """The range that one task reads; `None` if there is nothing to read."""

    def __init__(self, value: PlannedRange | None) -> None:
        super().__init__(value)
        self.value: PlannedRange | None = value


class BatchReader(DataSourceReader):  # type: ignore[misc]
    """A query of the records between two positions."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._pruning = Pruning()

    @without_traceback()
    def partitions(self) -> list[RangePartition]:
        options = self._options
        with open_planner(options) as client:
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
            start, end = self._pruning.narrow(client, start, end)
            return plan(client, start, end, options, self._pruning.times())

    def read(self, partition: RangePartition) -> Iterator[pa.RecordBatch]:
        return read_planned(self._options, self._schema, partition.value)


class PushdownReader(BatchReader):
    """A batch query that Spark passes its filters to.

    It is a class of its own because Spark fails each read of a reader with `pushFilters` while
    pushdown is off (`spark.sql.python.filterPushdown.enabled`).
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Keep the filters for planning; return all, because they only bound the offsets."""
        self._pruning = Pruning(tuple(filters))
        return filters


def plan(
    client: TopicClient,
    start: StreamOffset,
    end: StreamOffset,
    options: SourceOptions,
    times: Times = ANY_TIME,
) -> list[RangePartition]:
    """Return one task per range, or a single task without a range.

    times: of wanted records. Spark cannot run a query without tasks. Raises as `planned`.
    """
    ranges = identified(ranges_between(start.offsets, end.offsets), end)
    pieces = split_ranges(
        ranges, options.partitions_min, offsets_max=options.records_per_partition_max
    )
    found = [RangePartition(each) for each in planned(client, pieces, times)]
    return found or [RangePartition(None)]
