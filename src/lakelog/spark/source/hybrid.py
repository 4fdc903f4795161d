"""Ranges that are partly in the table of their topic: planned by the driver, read by tasks.

The work is in `lakelog.tables.hybrid`; this module connects it with the options of a query.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from lakelog.base.events import event
from lakelog.spark.python_processes import exempt_modules
from lakelog.spark.schema import arrow_schema
from lakelog.spark.source.clients import reading_client
from lakelog.spark.source.continuation import report_loss
from lakelog.spark.source.options import SourceOptions
from lakelog.tables.hybrid.archives import check_log
from lakelog.tables.hybrid.client import HybridClient, HybridReading
from lakelog.tables.hybrid.files import ANY_TIME, PlannedRange, Times, plan_ranges
from lakelog.tables.hybrid.rows import ArchivedRows
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.topic.errors import DataLossError
from lakelog.tables.topic.offsets import OffsetRange
from lakelog.tables.topic.rows import ArrowRows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

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
