"""A client for planning, to which a topic begins where its table begins.

It finds the first archived record at or after a time in the files of the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from lakelog.client.offsets import EARLIEST, OffsetAt
from lakelog.tables.hybrid.archives import TopicArchive, open_archives
from lakelog.tables.hybrid.files import Times, files_of
from lakelog.tables.hybrid.rows import ArchivedRows
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.topic.errors import OptionError
from lakelog.tables.topic.offsets import TopicPartition
from lakelog.tables.topic.ranges import OffsetRange

_SCHEMA = pa.schema([pa.field("timestamp", pa.timestamp("us", "UTC"))])


def first_at(archive: TopicArchive, offset_range: OffsetRange, timestamp_ms: int) -> int | None:
    """Return the first offset of the range at or after a time, milliseconds since the epoch.

    Only files whose bounds allow such a record are read, in order, up to the first
    match. Raises as `files_of` and `ArchivedRows.read`.
    """
    files = files_of(archive, [offset_range], Times(first_us=timestamp_ms * 1000))
    rows = ArchivedRows(_SCHEMA, archive.address.catalog, null_timestamps=True, hint="")
    at = pa.scalar(timestamp_ms * 1000, pa.int64()).cast(_SCHEMA.field(0).type)
    for batch in rows.read(offset_range, files):
        later = pc.fill_null(pc.greater_equal(batch.column(1), at), False)
        matches = batch.column(0).filter(later)
        if len(matches):
            return int(matches[0].as_py())
    return None


_UNKNOWN_EPOCH = -1


class HybridClient(TopicClient):
    """`TopicClient` whose `places` include archived offsets. Arguments as there."""

    def places(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAt]:
        """Return the first offset at or after each time, in the table or in the log.

        Raises as `TopicClient.places`, and `ArchiveUnreadableError`.
        """
        offsets = super().places(timestamps)
        early = {key: time for key, time in timestamps.items() if time >= 0 or time == EARLIEST}
        if not early:
            return offsets
        archives = open_archives(self, {topic for topic, _ in early})
        if not archives:
            return offsets
        keys = [key for key in early if key[0] in archives]
        starts = super().places(dict.fromkeys(keys, EARLIEST))
        for key in keys:
            before = _first(archives[key[0]], key, early[key], starts[key].offset)
            if before is not None:
                offsets[key] = OffsetAt(before, -1, _UNKNOWN_EPOCH)
        return offsets

    def archives(self, ranges: Iterable[OffsetRange]) -> dict[str, TopicArchive]:
        """Return the newest version of the tables of the ranges' topics.

        A query that reads uncommitted records gets none, because the table has committed ones only.
        Raises `OptionError` if it needs the table, because the log begins later, and
        `ArchiveUnreadableError`.
        """
        parts = list(ranges)
        archives = open_archives(self, {part.topic for part in parts})
        if self.is_read_committed or not archives:
            return archives
        old = [part for part in parts if part.topic in archives]
        starts = super().places(dict.fromkeys(((e.topic, e.partition) for e in old), EARLIEST))
        for part in old:
            extent = archives[part.topic].extent(part.partition)
            start = starts[part.topic, part.partition].offset
            if extent is not None and part.start < min(start, extent.end):
                raise OptionError(
                    f"{part}: the log begins at offset {start}; the records before are in the "
                    "topic's table, which has committed records only. Remove the option "
                    "kafka.isolation.level=read_uncommitted, or begin at the start of the log"
                )
        return {}


def _first(archive: TopicArchive, key: TopicPartition, time: int, log_start: int) -> int | None:
    """Return the first archived offset at or after a time, if it is before the start of the log."""
    extent = archive.extent(key[1])
    if extent is None or extent.start >= log_start:
        return None
    if time == EARLIEST:
        return extent.start
    offset_range = OffsetRange(*key, extent.start, min(extent.end, log_start), archive.topic_id)
    return first_at(archive, offset_range, time)
