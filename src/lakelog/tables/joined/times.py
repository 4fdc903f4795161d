"""Finds the first archived record at or after a time."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lakelog.tables.joined.archives import TopicArchive
from lakelog.tables.joined.files import Times, files_of
from lakelog.tables.joined.rows import ArchivedRows
from lakelog.tables.topic.ranges import OffsetRange

_SCHEMA = pa.schema([pa.field("timestamp", pa.timestamp("us", "UTC"))])


def first_at(archive: TopicArchive, wanted: OffsetRange, timestamp_ms: int) -> int | None:
    """Return the first offset of the range at or after a time, milliseconds since the epoch.

    Only files whose bounds allow such a record are read, in order, up to the first
    match. Raises as `files_of` and `ArchivedRows.read`.
    """
    files = files_of(archive, [wanted], Times(first_us=timestamp_ms * 1000))
    rows = ArchivedRows(_SCHEMA, archive.address.catalog, null_timestamps=True, way_on="")
    at = pa.scalar(timestamp_ms * 1000, pa.int64()).cast(_SCHEMA.field(0).type)
    for batch in rows.read(wanted, files):
        later = pc.fill_null(pc.greater_equal(batch.column(1), at), False)
        matches = batch.column(0).filter(later)
        if len(matches):
            return int(matches[0].as_py())
    return None
