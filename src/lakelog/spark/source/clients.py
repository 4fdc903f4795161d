"""Clients of a query's cluster: one for planning, and one for the tasks of a worker.

A worker reads one task after another, so it keeps the connections of the last task. They save a
micro-batch three connections, which take longer than its records.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from lakelog.base.events import event
from lakelog.spark.python_processes import exempt_modules, is_worker
from lakelog.spark.schema import arrow_schema
from lakelog.spark.source.continuation import report_loss
from lakelog.spark.source.options import SourceOptions
from lakelog.tables.hybrid.archives import ANY_TIME, PlannedRange, Times, check_log, plan_ranges
from lakelog.tables.hybrid.client import HybridClient, HybridReading
from lakelog.tables.hybrid.rows import ArchivedRows
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.topic.errors import DataLossError
from lakelog.tables.topic.offsets import OffsetRange
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
