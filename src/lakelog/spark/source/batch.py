"""Batch queries: the driver plans ranges of offsets once, and tasks read them.

It plans the part of the topic whose records a query's filters can let through. Spark applies every
filter again, so the answers may include too much, but never too little. Ranges may be partly in the
table of their topic (`lakelog.tables.hybrid`).

A worker reads one task after another, so it keeps the connections of the last task. They save a
micro-batch three connections, which take longer than its records.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from lakelog.base.events import event
from lakelog.spark.python_processes import exempt_modules, is_worker, without_traceback
from lakelog.spark.schema import arrow_schema
from lakelog.spark.source.continuation import continue_from, find_topics, report_loss, resolve
from lakelog.spark.source.options import SourceOptions
from lakelog.tables.hybrid.archives import ANY_TIME, PlannedRange, Times, check_log, plan_ranges
from lakelog.tables.hybrid.client import HybridClient, HybridReading
from lakelog.tables.hybrid.rows import ArchivedRows
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.topic.errors import DataLossError
from lakelog.tables.topic.offsets import (
    OffsetRange,
    StreamOffset,
    TopicPartition,
    from_items,
    identified,
    items,
    ranges_between,
    split_ranges,
)
from lakelog.tables.topic.rows import ArrowRows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


_kept: dict[tuple[object, ...], TopicClient] = {}
"""The client of the last task, by its settings."""


def open_planner(options: SourceOptions) -> TopicClient:
    """Return a client for planning: with tables, a topic begins where its table begins.

    Raises `AddressError` for a malformed address.
    """
    kind = HybridClient if options.reads_tables else TopicClient
    return kind(
        options.bootstrap, timeout_s=options.client.planning_timeout_s, **_settings(options)
    )


@contextmanager
def reading_client(options: SourceOptions) -> Iterator[TopicClient]:
    """Return a client for records.

    A worker keeps it for the next task, unless this one ends with an error or before its end.
    Raises `AddressError`.
    """
    # The query is running: its broker may be restarting, but its address is not wrong.
    settings = {
        "timeout_s": options.client.reading_timeout_s,
        "awaits_cluster": True,
        **_settings(options),
    }
    key = options.bootstrap, *settings.values()
    # A client that is in use is not among those kept: a task may need two.
    client = _kept.pop(key, None) or TopicClient(options.bootstrap, **settings)
    try:
        yield client
    except BaseException:
        client.close()
        raise
    _keep(key, client)


def _keep(key: tuple[object, ...], client: TopicClient) -> None:
    while _kept:
        _kept.popitem()[1].close()
    if is_worker():
        _kept[key] = client
    else:
        client.close()


def _settings(options: SourceOptions) -> dict[str, Any]:
    given = options.client
    return {
        "client_id": given.client_id,
        "read_committed": options.read_committed,
        "request_timeout_s": given.request_timeout_s,
        "fetch_bytes": given.fetch_bytes,
        "fetch_wait_ms": given.fetch_wait_ms,
    }


_log = logging.getLogger("lakelog.spark.source")
_HINT = (
    "Set the option impossibleTimestamps=null to read such a timestamp as null, with its number in "
    "the column rawTimestamp"
)


def planned(
    client: TopicClient, ranges: list[OffsetRange], times: Times = ANY_TIME
) -> list[PlannedRange]:
    """Return the ranges, cut where the tables of their topics end.

    times: of wanted records; files of tables without any are skipped. Each table is loaded once, in
    its newest version. Raises `ArchiveUnreadableError`, `LogDivergedError` if a log lost archived
    records, and `OptionError` for uncommitted records.
    """
    if not isinstance(client, HybridClient):
        return [PlannedRange(part) for part in ranges]
    archives = client.archives(ranges)
    for topic, archive in archives.items():
        touched = {
            part.partition
            for part in ranges
            if part.topic == topic
            and (extent := archive.extent(part.partition)) is not None
            and part.start < extent.end < part.end
        }
        check_log(client, archive, touched)
        _note_refused(topic, archive.dead_letters, archive.skipped_records)
    return plan_ranges(ranges, archives, times)


@cache
def _note_refused(topic: str, dead_letters: int, skipped: int) -> None:
    """Log once per process that the table lacks records that cannot be its rows."""
    if dead_letters or skipped:
        _log.warning(
            "the table of %r lacks records that cannot be rows: %d dead letters, %d skipped",
            topic,
            dead_letters,
            skipped,
            extra=event("archive_lacks_records", topic=topic),
        )


def read_planned(
    options: SourceOptions, schema: StructType, planned_range: PlannedRange | None
) -> Iterator[pa.RecordBatch]:
    """Yield the records of the range.

    Raises `DataLossError` if records are lost before or during the read and the query does not
    accept that, `ArchiveUnreadableError`, `BadRecordError`, and `KafkaError`.
    """
    if planned_range is None:
        return
    columns = arrow_schema(schema)
    catalog = {} if planned_range.address is None else planned_range.address.catalog

    def on_loss(_: OffsetRange, error: DataLossError) -> None:
        report_loss(str(error), fail=options.fail_on_data_loss)

    nulls = options.null_timestamps
    reading = HybridReading(
        ArchivedRows(columns, catalog, null_timestamps=nulls, hint=_HINT),
        ArrowRows(columns, null_timestamps=nulls, hint=_HINT),
        lambda: reading_client(options),
        on_loss,
        finds_tables=options.reads_tables and options.read_committed,
    )
    try:
        yield from reading.read(planned_range)
    finally:
        exempt_modules()


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_OFFSET_END = 2**63 - 1
_COMPARISONS: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: lambda value, given: bool(value == given),
    EqualNullSafe: lambda value, given: bool(value == given),
    GreaterThan: lambda value, given: bool(value > given),
    GreaterThanOrEqual: lambda value, given: bool(value >= given),
    LessThan: lambda value, given: bool(value < given),
    LessThanOrEqual: lambda value, given: bool(value <= given),
    In: lambda value, given: value in given,
    StringStartsWith: lambda value, given: bool(value.startswith(given)),
    StringEndsWith: lambda value, given: bool(value.endswith(given)),
    StringContains: lambda value, given: given in value,
}


@dataclass(frozen=True, slots=True)
class Pruning:
    """The filters of a batch query, all of which its rows fulfil."""

    filters: tuple[Filter, ...] = ()

    def narrow(
        self, client: TopicClient, start: StreamOffset, end: StreamOffset
    ) -> tuple[StreamOffset, StreamOffset]:
        """Return the part between two points that may have rows of the result.

        `end` was read before this call: records that are appended meanwhile do not belong to the
        result, so a missing record after a time means that the range has none. Raises
        `TopicMissingError` and `KafkaError`.
        """
        kept = {key: at for key, at in items(end.offsets) if self._has(key)}
        first, last = self._offset_bounds()
        begins = {key: max(start.offsets.get(key[0], {}).get(key[1], 0), first) for key in kept}
        ends = {key: min(at, last) for key, at in kept.items()}
        since_ms = self._first_timestamp_ms()
        if since_ms is not None:
            open_ones = [key for key in ends if begins[key] < ends[key]]
            places = client.places(dict.fromkeys(open_ones, since_ms))
            for key, begin in places.items():
                # The records before this one are older; those after it may be of any age.
                begins[key] = max(begins[key], begin.offset if begin.offset >= 0 else ends[key])
        return (
            StreamOffset(from_items(begins), start.topic_ids, start.epochs),
            StreamOffset(from_items(ends), end.topic_ids, end.epochs),
        )

    def times(self) -> Times:
        """Return the timestamps of possible result rows, for the files of tables.

        In a log an upper limit selects nothing, because producers set timestamps. Files have bounds
        of their timestamps, so files with later ones only are skipped.
        """
        first: list[int] = []
        last: list[int] = []
        for kind, value in self._of_column("timestamp", datetime):
            if any(time.tzinfo is None for time in value):
                continue
            if kind is not LessThan and kind is not LessThanOrEqual:
                first.append((min(value) - _EPOCH) // _MICROSECOND)
            if kind is not GreaterThan and kind is not GreaterThanOrEqual:
                last.append((max(value) - _EPOCH) // _MICROSECOND)
        return Times(max(first, default=None), min(last, default=None))

    def _has(self, key: TopicPartition) -> bool:
        return all(_accepts(pushed, "topic", key[0]) for pushed in self.filters) and all(
            _accepts(pushed, "partition", key[1]) for pushed in self.filters
        )

    def _offset_bounds(self) -> tuple[int, int]:
        """Return the first offset, and the one after the last."""
        first, last = 0, _OFFSET_END
        for kind, value in self._of_column("offset", int):
            if kind is not LessThan and kind is not LessThanOrEqual:
                first = max(first, min(value) + (kind is GreaterThan))
            if kind is not GreaterThan and kind is not GreaterThanOrEqual:
                last = min(last, max(value) + (kind is not LessThan))
        return first, last

    def _first_timestamp_ms(self) -> int | None:
        """Return a time that no record of the result is older than.

        A latest time says nothing about offsets, because producers set timestamps.
        """
        timestamps = [
            (min(value) - _EPOCH) // timedelta(milliseconds=1)
            for kind, value in self._of_column("timestamp", datetime)
            if kind is not LessThan and kind is not LessThanOrEqual
            if all(time.tzinfo is not None for time in value)
        ]
        # Brokers give negative times a meaning of their own.
        return max((timestamp for timestamp in timestamps if timestamp >= 0), default=None)

    def _of_column(self, name: str, of: type) -> Iterator[tuple[type[Filter], tuple[Any, ...]]]:
        """Yield the kind and the values of each comparison of a column."""
        for pushed in self.filters:
            if isinstance(pushed, Not) or getattr(pushed, "attribute", None) != (name,):
                continue
            value = getattr(pushed, "value", None)
            values = value if isinstance(value, tuple) else (value,)
            if type(pushed) in _COMPARISONS and values and all(isinstance(v, of) for v in values):
                yield type(pushed), values


def _accepts(given: Filter, column: str, value: str | int) -> bool:
    """Return whether a record with this value of a column may fulfil the filter."""
    if isinstance(given, Not):
        exact = getattr(given.child, "attribute", None) == (column,)
        return not (exact and type(given.child) in _COMPARISONS and _compare(given.child, value))
    if getattr(given, "attribute", None) != (column,) or type(given) not in _COMPARISONS:
        return True
    return _compare(given, value)


def _compare(given: Filter, value: str | int) -> bool:
    return _COMPARISONS[type(given)](value, given.value)


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
            subscribed = find_topics(client, options.subscription).complete()
            start = resolve(
                client,
                options.starting,
                subscribed,
                latest_if_no_timestamp=options.latest_if_no_timestamp,
            )
            end = resolve(client, options.ending, subscribed)
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
    partitions = [RangePartition(piece) for piece in planned(client, pieces, times)]
    return partitions or [RangePartition(None)]
