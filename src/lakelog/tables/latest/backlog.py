"""Reads the rows of the archive's table that the table of newest records does not have yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from lakelog.tables.joined.archives import TopicArchive
from lakelog.tables.joined.files import files_of
from lakelog.tables.joined.reading import read_archived
from lakelog.tables.joined.rows import ArchivedRows
from lakelog.tables.latest.newest import last_of_partitions
from lakelog.tables.latest.spill import Spill
from lakelog.tables.topic.ranges import OffsetRange
from lakelog.tables.typed.columns import own_schema

_CHUNK_BYTES = 32 << 20


@dataclass(slots=True)
class Taken:
    """Rows that were read. ends: the offsets up to which. null_keys: rows without a key."""

    rows: int = 0
    ends: dict[int, int] = field(default_factory=dict)
    null_keys: dict[int, int] = field(default_factory=dict)


def backlog(
    archive: TopicArchive, starts: Mapping[int, int], ends: Mapping[int, int]
) -> list[OffsetRange]:
    """Return the archived offsets between `starts` (0 by default) and `ends` of the partitions."""
    ranges = []
    for partition, extent in sorted(archive.progress.extents.items()):
        start = max(extent.start, starts.get(partition, 0))
        end = min(extent.end, ends.get(partition, 0))
        if start < end:
            ranges.append(OffsetRange(archive.topic, partition, start, end, archive.topic_id))
    return ranges


def take(
    archive: TopicArchive, ranges: Iterable[OffsetRange], spill: Spill, bytes_max: int
) -> Taken:
    """Add the last row of each key and partition to `spill`, in chunks.

    Stop when a bucket has about `bytes_max`. Rows without a key are counted only. Raises
    `ArchiveUnreadableError` and `OSError`.
    """
    reader = ArchivedRows(
        own_schema(archive.table), archive.address.catalog, null_timestamps=True, way_on=""
    )
    taken = Taken()
    for wanted in ranges:
        chunk: list[pa.RecordBatch] = []
        size = 0
        for batch in read_archived(reader, wanted, archive.address, files_of(archive, [wanted])):
            chunk.append(batch)
            size += batch.nbytes
            if size < _CHUNK_BYTES:
                continue
            _add(chunk, wanted.partition, spill, taken)
            taken.ends[wanted.partition] = batch.column("offset")[-1].as_py() + 1
            chunk, size = [], 0
            if max(spill.sizes.values(), default=0) >= bytes_max:
                return taken
        _add(chunk, wanted.partition, spill, taken)
        taken.ends[wanted.partition] = wanted.end
    return taken


def _add(chunk: Sequence[pa.RecordBatch], partition: int, spill: Spill, taken: Taken) -> None:
    if not chunk:
        return
    rows = pa.Table.from_batches(chunk)
    taken.rows += rows.num_rows
    without = rows.column("key").null_count
    if without:
        taken.null_keys[partition] = taken.null_keys.get(partition, 0) + without
        rows = rows.filter(pc.is_valid(rows.column("key")))
    spill.add(last_of_partitions(rows))
