"""Proves that a table has each archived record exactly once.

For each partition the audit reads the offsets of all rows and checks that each offset is there
once, within the extent of the progress. Offsets without a row are gaps. Control records, aborted
records and compaction leave gaps, but so would a lost record. Where the log still has the offsets,
it decides: the committed records of the log and the rows must be the same offsets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from lakelog.tables.archive.skipped import skipped_between
from lakelog.tables.joined.archives import TopicArchive
from lakelog.tables.joined.files import files_of
from lakelog.tables.joined.rows import ArchivedRows
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.topic.offsets import TopicPartition
from lakelog.tables.topic.ranges import OffsetRange
from lakelog.tables.topic.rows import ArrowRows

_ALL = 1 << 62
_WINDOW = 1 << 20
"""Offsets that are compared at a time, so memory is bounded."""
_NAMED_MAX = 8
_OFFSET = pa.schema([pa.field("offset", pa.int64())])
_NO_COLUMNS = pa.schema([])


@dataclass(slots=True)
class PartitionAudit:
    """The findings in one partition.

    start, end: the extent of the progress, exclusive. compared: the records of the log that were
    compared with rows. unverified: offsets without a row that the log no longer has. duplicates,
    outside, missing, extra: examples of wrong offsets, with their counts.
    """

    partition: int
    start: int
    end: int
    rows: int = 0
    compared: int = 0
    unverified: int = 0
    skipped: int = 0
    duplicates: Offences = field(default_factory=lambda: Offences())
    outside: Offences = field(default_factory=lambda: Offences())
    missing: Offences = field(default_factory=lambda: Offences())
    extra: Offences = field(default_factory=lambda: Offences())

    @property
    def is_sound(self) -> bool:
        """Whether no offset is wrong."""
        wrong = (self.duplicates, self.outside, self.missing, self.extra)
        return not any(each.count for each in wrong)


@dataclass(slots=True)
class Offences:
    """Wrong offsets of one kind: how many, and the first of them."""

    count: int = 0
    first: list[int] = field(default_factory=list)

    def add(self, offsets: pa.Array) -> None:
        """Count these offsets."""
        self.count += len(offsets)
        self.first += offsets[: max(0, _NAMED_MAX - len(self.first))].to_pylist()


@dataclass(frozen=True, slots=True)
class Audit:
    """The findings in all partitions. total_records: the count in the snapshot's summary."""

    partitions: list[PartitionAudit]
    total_records: int

    @property
    def rows(self) -> int:
        """Number of rows that were read."""
        return sum(each.rows for each in self.partitions)

    @property
    def is_sound(self) -> bool:
        """Whether no offset is wrong and the table counts its rows correctly."""
        return all(each.is_sound for each in self.partitions) and self.rows == self.total_records


def audit(client: TopicClient, archive: TopicArchive) -> Audit:
    """Compare one version of a table with its progress and with the log.

    Raises `DataLossError` if the log changes meanwhile, `ArchiveUnreadableError`, `BadRecordError`
    and `KafkaError`.
    """
    found = []
    extents = archive.progress.extents
    keys: list[TopicPartition] = [(archive.topic, partition) for partition in sorted(extents)]
    starts = client.earliest(keys)
    lost = skipped_between(archive.table, None, archive.table.metadata.current_snapshot_id)
    for key in keys:
        start, end, _ = extents[key[1]]
        one = PartitionAudit(key[1], start, end)
        one.skipped = sum(each.end - each.start for each in lost if each.partition == key[1])
        _check_rows(archive, one)
        first = min(max(start, starts[key]), end)
        one.unverified = (first - start) - _count(archive, key[1], start, first)
        for at in range(first, end, _WINDOW):
            _compare(client, archive, one, at, min(at + _WINDOW, end))
        found.append(one)
    snapshot = archive.table.current_snapshot()
    total = 0 if snapshot is None or snapshot.summary is None else snapshot.summary["total-records"]
    return Audit(found, int(total or 0))


def row_offsets(
    archive: TopicArchive, partition: int, start: int = 0, end: int = _ALL
) -> Iterator[pa.Array]:
    """Yield the offsets of a partition's rows in order, with duplicates."""
    wanted = OffsetRange(archive.topic, partition, start, end, archive.topic_id)
    if start >= end:
        return
    reader = ArchivedRows(_NO_COLUMNS, archive.address.catalog, null_timestamps=True, way_on="")
    for batch in reader.read(wanted, files_of(archive, [wanted])):
        yield batch.column(0)


def _check_rows(archive: TopicArchive, one: PartitionAudit) -> None:
    """Count rows; find offsets that are there twice or outside the extent."""
    last = pa.array([-1], pa.int64())
    for offsets in row_offsets(archive, one.partition):
        one.rows += len(offsets)
        before = pa.concat_arrays([last, offsets[:-1]])
        one.duplicates.add(offsets.filter(pc.less_equal(offsets, before)))
        outside = pc.or_(pc.less(offsets, one.start), pc.greater_equal(offsets, one.end))
        one.outside.add(offsets.filter(outside))
        last = offsets[-1:]


def _count(archive: TopicArchive, partition: int, start: int, end: int) -> int:
    return sum(len(offsets) for offsets in row_offsets(archive, partition, start, end))


def _compare(
    client: TopicClient, archive: TopicArchive, one: PartitionAudit, start: int, end: int
) -> None:
    """Compare the committed records of the log with the rows, in a window of offsets."""
    wanted = OffsetRange(archive.topic, one.partition, start, end, archive.topic_id)
    rows = ArrowRows(_OFFSET, null_timestamps=True, way_on="")
    logged = _joined([b.column(0) for b in rows.convert(wanted, client.batches(wanted))])
    archived = _joined(list(row_offsets(archive, one.partition, start, end)))
    one.compared += len(logged)
    if logged.equals(archived):
        return
    one.missing.add(logged.filter(pc.invert(pc.is_in(logged, value_set=archived))))
    one.extra.add(archived.filter(pc.invert(pc.is_in(archived, value_set=logged))))


def _joined(arrays: list[pa.Array]) -> pa.Array:
    return pa.concat_arrays(arrays) if arrays else pa.array([], pa.int64())
