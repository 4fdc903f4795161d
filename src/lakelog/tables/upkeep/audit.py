"""Proves that a table has each archived record exactly once.

For each partition the audit reads the offsets of all rows and checks that each offset is there
once, within the extent of the progress. Offsets without a row are gaps. Control records, aborted
records and compaction leave gaps, but so would a lost record. Where the log still has the offsets,
it decides: the committed records of the log and the rows must be the same offsets.

Records that cannot be rows are accounted for one by one: each is a dead letter, or the progress
counts it as skipped.

`adopt_rows` makes the rows of another program the progress. They must be of the topic, each offset
once. The archive continues after the greatest offset of each partition. Offsets between the rows
count as archived: they are gaps, as control records are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import NotEqualTo

from lakelog.tables.archive.dead_letters import dead_letter_ranges, find_dead_letters
from lakelog.tables.archive.failures import SyncError
from lakelog.tables.archive.history import record, skipped_between
from lakelog.tables.archive.progress import ArchiveJob, Extent, Progress
from lakelog.tables.archive.refusals import RefusedCount, RefusedRecord, RowFilter
from lakelog.tables.hybrid.archives import TopicArchive, files_of
from lakelog.tables.hybrid.rows import ArchivedRows
from lakelog.tables.iceberg.table import load_for_commit, rows_in
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.topic.offsets import OffsetRange, TopicPartition

_ALL = 1 << 62
_WINDOW = 1 << 20
"""Offsets that are compared at a time, so memory is bounded."""
_NAMED_MAX = 8
_COMPARED = pa.schema(
    [
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", "UTC"), nullable=False),
    ]
)
_NO_COLUMNS = pa.schema([])


@dataclass(slots=True)
class Offences:
    """Wrong offsets of one kind: how many, and the first of them."""

    count: int = 0
    first: list[int] = field(default_factory=list)

    def add(self, offsets: pa.Array) -> None:
        """Count these offsets."""
        self.count += len(offsets)
        self.first += offsets[: max(0, _NAMED_MAX - len(self.first))].to_pylist()


@dataclass(slots=True)
class PartitionAudit:
    """The findings in one partition.

    start, end: the extent of the progress, exclusive. compared: the records of the log that were
    compared with rows. unverified: offsets without a row that the log no longer has. skipped:
    offsets that the log lost before. refused: offsets of the progress that cannot be rows.
    unproved: refused offsets that are in no table, found in the log. lost_dead_letters: dead
    letters that the progress counts and their table lacks. duplicates, outside, missing, extra,
    doubled: examples of wrong offsets, with their counts; doubled ones are rows and dead letters.
    """

    partition: int
    start: int
    end: int
    rows: int = 0
    compared: int = 0
    unverified: int = 0
    skipped: int = 0
    refused: RefusedCount = field(default_factory=RefusedCount)
    lost_dead_letters: int = 0
    unproved: Offences = field(default_factory=Offences)
    duplicates: Offences = field(default_factory=Offences)
    outside: Offences = field(default_factory=Offences)
    missing: Offences = field(default_factory=Offences)
    extra: Offences = field(default_factory=Offences)
    doubled: Offences = field(default_factory=Offences)

    @property
    def wrong(self) -> int:
        """Number of wrong offsets."""
        kinds = (self.duplicates, self.outside, self.missing, self.extra, self.doubled)
        return sum(kind.count for kind in kinds) + self.lost_dead_letters

    @property
    def is_sound(self) -> bool:
        """Whether no offset is wrong."""
        return not self.wrong


@dataclass(frozen=True, slots=True)
class Audit:
    """The findings in all partitions. total_records: the count in the snapshot's summary."""

    partitions: list[PartitionAudit]
    total_records: int

    @property
    def rows(self) -> int:
        """Number of rows that were read."""
        return sum(p.rows for p in self.partitions)

    @property
    def is_sound(self) -> bool:
        """Whether no offset is wrong and the table counts its rows correctly."""
        return all(p.is_sound for p in self.partitions) and self.rows == self.total_records


def audit(client: TopicClient, archive: TopicArchive) -> Audit:
    """Compare one version of a table with its progress and with the log.

    Raises `DataLossError` if the log changes meanwhile, `ArchiveUnreadableError`, `BadRecordError`
    and `KafkaError`.
    """
    partitions = []
    extents = archive.progress.extents
    keys: list[TopicPartition] = [(archive.topic, partition) for partition in sorted(extents)]
    starts = client.earliest(keys)
    lost = skipped_between(archive.table, None, archive.table.metadata.current_snapshot_id)
    dead_letters = find_dead_letters(archive.address)
    for key in keys:
        start, end, _ = extents[key[1]]
        one = PartitionAudit(key[1], start, end)
        one.refused = archive.progress.refused.get(key[1], RefusedCount())
        one.skipped = sum(piece.end - piece.start for piece in lost if piece.partition == key[1])
        named = [] if dead_letters is None else dead_letter_ranges(dead_letters, *key)
        # Dead letters from `end` on are of a batch that is not committed yet.
        refused = _RefusedOffsets([(at, min(last, end)) for at, last in named if at < end], one)
        _check_rows(archive, one, refused)
        first = min(max(start, starts[key]), end)
        below = (first - start) - _count(archive, key[1], start, first)
        for at in range(first, end, _WINDOW):
            _compare(client, archive, one, refused, at, min(at + _WINDOW, end))
        refused.complete()
        one.unverified = max(0, below - refused.below(first))
        partitions.append(one)
    return Audit(partitions, rows_in(archive.table))


class _RefusedOffsets:
    """The offsets of a partition that cannot be rows.

    dead_letters: the dead letters in order, as pairs of start and exclusive end.
    """

    def __init__(self, dead_letters: list[tuple[int, int]], one: PartitionAudit) -> None:
        self._dead_letters = dead_letters
        self._starts = [start for start, _ in dead_letters]
        self._one = one

    def check_rows(self, offsets: pa.Array) -> None:
        """Find rows that are dead letters, too."""
        if not self._dead_letters or not len(offsets):
            return
        low = bisect_right(self._starts, offsets[0].as_py()) - 1
        high = bisect_right(self._starts, offsets[-1].as_py())
        for start, end in self._dead_letters[max(0, low) : high]:
            inside = pc.and_(pc.greater_equal(offsets, start), pc.less(offsets, end))
            self._one.doubled.add(offsets.filter(inside))

    def note(self, refused: RefusedRecord, archived: pa.Array) -> pa.Array:
        """Account for a refused record of the log; return its rows.

        It may have rows: impossible timestamps may be null, and a batch may be damaged later.
        """
        first, last = refused.offset, refused.offset_last
        inside = pc.and_(pc.greater_equal(archived, first), pc.less_equal(archived, last))
        rows = archived.filter(inside)
        if not len(rows):
            unnamed = [
                offset for offset in range(first, last + 1) if not self._is_dead_letter(offset)
            ]
            self._one.unproved.add(pa.array(unnamed, pa.int64()))
        return rows

    def _is_dead_letter(self, offset: int) -> bool:
        at = bisect_right(self._starts, offset) - 1
        return at >= 0 and offset < self._dead_letters[at][1]

    def complete(self) -> None:
        """Compare the counts with the progress."""
        one = self._one
        dead_letters = sum(end - start for start, end in self._dead_letters)
        one.lost_dead_letters = max(0, one.refused.dead_letters - dead_letters)
        excess = one.unproved.count - one.refused.skipped - one.lost_dead_letters
        if excess > 0:
            one.missing.count += excess
            one.missing.first += one.unproved.first[: max(0, _NAMED_MAX - len(one.missing.first))]

    def below(self, first: int) -> int:
        """Return how many refused offsets are below the start of the log."""
        dead_letters = sum(
            min(end, first) - start for start, end in self._dead_letters if start < first
        )
        return dead_letters + max(0, self._one.refused.skipped - self._one.unproved.count)


def row_offsets(
    archive: TopicArchive, partition: int, start: int = 0, end: int = _ALL
) -> Iterator[pa.Array]:
    """Yield the offsets of a partition's rows in order, with duplicates."""
    offset_range = OffsetRange(archive.topic, partition, start, end, archive.topic_id)
    if start >= end:
        return
    reader = ArchivedRows(_NO_COLUMNS, archive.address.catalog, null_timestamps=True, hint="")
    for batch in reader.read(offset_range, files_of(archive, [offset_range])):
        yield batch.column(0)


def _check_rows(archive: TopicArchive, one: PartitionAudit, refused: _RefusedOffsets) -> None:
    """Count rows; find offsets that are there twice, outside the extent, or dead letters."""
    last = pa.array([-1], pa.int64())
    for offsets in row_offsets(archive, one.partition):
        one.rows += len(offsets)
        before = pa.concat_arrays([last, offsets[:-1]])
        one.duplicates.add(offsets.filter(pc.less_equal(offsets, before)))
        outside = pc.or_(pc.less(offsets, one.start), pc.greater_equal(offsets, one.end))
        one.outside.add(offsets.filter(outside))
        refused.check_rows(offsets)
        last = offsets[-1:]


def _count(archive: TopicArchive, partition: int, start: int, end: int) -> int:
    return sum(len(offsets) for offsets in row_offsets(archive, partition, start, end))


def _compare(
    client: TopicClient,
    archive: TopicArchive,
    one: PartitionAudit,
    refused: _RefusedOffsets,
    start: int,
    end: int,
) -> None:
    """Compare the committed records of the log with the rows, in a window of offsets."""
    offset_range = OffsetRange(archive.topic, one.partition, start, end, archive.topic_id)
    archived = _joined(list(row_offsets(archive, one.partition, start, end)))
    unusual: list[pa.Array] = []
    rows = RowFilter(_COMPARED, lambda refusal: unusual.append(refused.note(refusal, archived)))
    usual = [batch.column(0) for batch in rows.convert(offset_range, client.batches(offset_range))]
    logged = _joined([*usual, *unusual])
    if unusual:
        logged = logged.take(pc.sort_indices(logged))
    one.compared += len(logged)
    if logged.equals(archived):
        return
    one.missing.add(logged.filter(pc.invert(pc.is_in(logged, value_set=archived))))
    one.extra.add(archived.filter(pc.invert(pc.is_in(archived, value_set=logged))))


def _joined(arrays: list[pa.Array]) -> pa.Array:
    return pa.concat_arrays(arrays) if arrays else pa.array([], pa.int64())


def adopt_rows(job: ArchiveJob, client: TopicClient, notice: Callable[[str], None]) -> None:
    """Record the rows of the table as the progress of the job's topic.

    Raises `SyncError` if the table already has a progress of the topic, if it has rows of another
    topic or of unknown partitions, if an offset is there twice, or if the log ends before a row.
    """
    table = load_for_commit(job.address)
    name = ".".join(job.identifier)
    archive = TopicArchive(job.topic, job.topic_id, job.address, table, Progress())
    if any(key.startswith("lakelog.sync.") for key in table.properties):
        raise SyncError(
            f"the table {name} has a progress already; --adopt rows is for other tables"
        )
    others = table.scan(row_filter=NotEqualTo("topic", job.topic), limit=1).to_arrow()
    if others.num_rows:
        raise SyncError(
            f"the table {name} has rows of topic {others['topic'][0].as_py()!r}: archive "
            f"{job.topic!r} into a table of another name"
        )
    partitions = client.describe([job.topic])[job.topic].partitions
    keys = [(job.topic, partition) for partition in partitions]
    starts, ends = client.earliest(keys), client.latest(keys)
    extents: dict[int, Extent] = {}
    total = 0
    for key in keys:
        first, end, rows = _extent(archive, key[1])
        total += rows
        if end > ends[key]:
            raise SyncError(
                f"the table {name} has {job.topic}-{key[1]}@{end - 1}, but the log ends at "
                f"{ends[key]}: the rows are of another log"
            )
        extents[key[1]] = Extent(first, end) if rows else Extent(starts[key], starts[key])
    counted = rows_in(table)
    if total != counted:
        raise SyncError(f"the table {name} has {counted} rows, but {total} are of this topic")
    with table.transaction() as transaction:
        record(transaction, job.topic_id, Progress(extents, "adopted", 0))
    notice(f"{job.topic}: adopted {total} rows of the table {name}")


def _extent(archive: TopicArchive, partition: int) -> tuple[int, int, int]:
    """Return the first offset, the offset after the last, and the number of rows."""
    first, end, rows = 0, 0, 0
    for offsets in row_offsets(archive, partition):
        is_rising = pc.all(pc.less(offsets[:-1], offsets[1:])).as_py()
        if not is_rising or (rows and offsets[0].as_py() < end):
            raise SyncError(
                f"the table {'.'.join(archive.address.identifier)} has an offset of "
                f"{archive.topic}-{partition} twice"
            )
        first = first if rows else int(offsets[0].as_py())
        end, rows = int(offsets[-1].as_py()) + 1, rows + len(offsets)
    return first, end, rows
