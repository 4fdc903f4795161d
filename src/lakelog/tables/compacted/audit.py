"""Computes the newest rows again from the archive, and compares the table with them.

Archive and table are divided by the hash of the key into parts that fit into memory. A key of one
partition must have its newest row, or none if that is a tombstone. Of a key that occurs in several
partitions the table may have the newest row of any of them: the first refresh that read one of them
could not compare it with rows that were archived later.

An overview has the size of the table, and how far it is behind the archive.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from lakelog.tables.compacted.backlog import (
    BucketMerge,
    Spill,
    backlog,
    fitted,
    last_of_partitions,
    take,
)
from lakelog.tables.compacted.table import CompactedTableError, agreed, bucket_numbers, buckets_of
from lakelog.tables.hybrid.archives import TopicArchive, reload
from lakelog.tables.iceberg.table import rows_in
from lakelog.tables.typed.columns import own_schema


@dataclass(frozen=True, slots=True)
class CompactedOverview:
    """One version of the table. lag: archived offsets that it does not have. size: in bytes.

    null_keys: archived records without a key, which are in no row.
    """

    rows: int
    files: int
    size: int
    buckets: int
    lag: int
    null_keys: int


def compacted_overview(archive: TopicArchive, table: Table) -> CompactedOverview:
    """Return the numbers of the table. Raises `CompactedTableError` if it was rolled back."""
    progress = agreed(table, archive.topic_id)
    files = [task.file for task in table.scan().plan_files()]
    return CompactedOverview(
        rows=sum(file.record_count for file in files),
        files=len(files),
        size=sum(file.file_size_in_bytes for file in files),
        buckets=buckets_of(table) or 0,
        lag=sum(
            part.end - part.start for part in backlog(archive, progress.ends, archive.progress.ends)
        ),
        null_keys=sum(progress.null_keys.values()),
    )


_PARTS_MAX = 256
_PART_BYTES = 64 << 20
_NAMED_MAX = 8
_COMPARED = ("key", "partition", "offset", "timestamp", "value")
_PLACE = ["partition", "offset"]
_NO_LIMIT = 1 << 62


@dataclass(slots=True)
class CompactedAudit:
    """The findings. rows: of the table. shared_keys: keys that occur in several partitions.

    wrong: the number of wrong rows and keys. first: the first of them, as text.
    """

    rows: int = 0
    keys: int = 0
    shared_keys: int = 0
    null_keys: int = 0
    wrong: int = 0
    first: list[str] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        """Whether the table has the newest row of each key, and nothing else."""
        return not self.wrong

    def add(self, what: str, rows: pa.Table) -> None:
        """Count wrong rows, and name the first."""
        self.wrong += rows.num_rows
        named = rows.slice(0, max(0, _NAMED_MAX - len(self.first))).select(["key", *_PLACE])
        for row in named.to_pylist():
            at = f"partition {row['partition']} offset {row['offset']}"
            self.first.append(f"{row['key']!r} ({at}) {what}")


def audit_compacted(archive: TopicArchive, table: Table) -> CompactedAudit:
    """Compare one version of the table with the archive, up to the table's progress.

    archive: any version; the newest one is loaded.
    Raises `CompactedTableError` if the table was rolled back or is of an earlier archive,
    `ArchiveUnreadableError` and `OSError`.
    """
    progress = agreed(table, archive.topic_id)
    # A job may have archived and refreshed more since the caller opened the archive.
    archive = reload(archive.topic, archive.topic_id, archive.address)
    buckets = buckets_of(table)
    is_of_archive = progress.archive == str(archive.table.metadata.table_uuid)
    if buckets is None or not is_of_archive or progress.rewinds != archive.progress.rewinds:
        raise CompactedTableError(
            f"the table {'.'.join(table.name())} was computed from an earlier state of the "
            f"archive: lakelog table refresh {archive.topic} --rebuild"
        )
    parts = _parts(archive, buckets)
    schema = own_schema(archive.table)
    compared = pa.schema([schema.field(name) for name in _COMPARED])
    audit = CompactedAudit()
    with Spill(parts, schema) as rows, Spill(parts, compared) as present:
        taken = take(archive, backlog(archive, {}, progress.ends), rows, _NO_LIMIT)
        audit.null_keys = sum(taken.null_keys.values())
        if taken.null_keys != dict(progress.null_keys):
            audit.wrong += 1
            audit.first.append(f"{audit.null_keys} records without a key are not those counted")
        _read_table(archive, table, compared, present, buckets, audit)
        for part in sorted(rows.sizes | present.sizes):
            _compare(last_of_partitions(rows.read(part)), present.read(part), audit)
    total = rows_in(table)
    if total != audit.rows:
        audit.wrong += 1
        audit.first.append(f"{audit.rows} rows are not the {total} of the snapshot's summary")
    return audit


def _parts(archive: TopicArchive, buckets: int) -> int:
    """Return a multiple of the number of buckets, so that each part is of one bucket."""
    tasks = archive.table.scan().plan_files()
    size = sum(int(task.file.file_size_in_bytes) for task in tasks)
    # Compressed files are several times smaller than their rows in memory.
    parts = 4 * size // _PART_BYTES // buckets + 1
    return buckets * max(1, min(parts, _PARTS_MAX // buckets))


def _read_table(
    archive: TopicArchive,
    table: Table,
    compared: pa.Schema,
    present: Spill,
    buckets: int,
    audit: CompactedAudit,
) -> None:
    """Spill the rows of the table; find rows in another bucket than that of their key."""
    for task in table.scan().plan_files():
        if task.delete_files:
            raise CompactedTableError(
                f"another program has deleted rows of the table {'.'.join(table.name())}: lakelog "
                f"table refresh {archive.topic} --rebuild"
            )
        bucket = task.file.partition[0]
        merge = BucketMerge([task.file.file_path], own_schema(table), archive.address.catalog)
        for read in merge.rows(list(_COMPARED)):
            rows = fitted(read, compared)
            audit.rows += rows.num_rows
            numbers = bucket_numbers(rows.column("key").combine_chunks(), buckets)
            audit.add(
                "is in the file of another bucket", rows.filter(pc.not_equal(numbers, bucket))
            )
            present.add(rows)


def _compare(rows: pa.Table, present: pa.Table, audit: CompactedAudit) -> None:
    """Compare the last rows of the partitions with the rows of the table, in one part."""
    keys = rows.select(["key"]).group_by("key").aggregate([([], "count_all")])
    audit.keys += keys.num_rows
    shared = keys.filter(pc.greater(keys.column("count_all"), 1)).column("key")
    audit.shared_keys += len(shared)
    doubled = present.group_by("key").aggregate([([], "count_all")])
    twice = doubled.filter(pc.greater(doubled.column("count_all"), 1)).column("key")
    audit.add("is there more than once", present.filter(_is_in(present, "key", twice)))
    live = rows.select(list(_COMPARED)).filter(pc.is_valid(rows.column("value")))
    same = present.join(live, keys=[*_PLACE], join_type="inner", right_suffix=".archived")
    equal = pc.and_(
        pc.equal(same.column("value"), same.column("value.archived")),
        pc.equal(same.column("key"), same.column("key.archived")),
    )
    right = same.filter(equal).select(_PLACE)
    wrong = present.join(right, keys=_PLACE, join_type="left anti")
    audit.add("is not the newest of its key in the archive", wrong)
    gone = rows.filter(pc.is_null(rows.column("value"))).column("key")
    missing = live.filter(pc.invert(_is_in(live, "key", present.column("key"))))
    # The tombstone in another partition may have been the newer one.
    audit.add("is missing", missing.filter(pc.invert(_is_in(missing, "key", gone))))


def _is_in(rows: pa.Table, name: str, values: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.is_in(rows.column(name), value_set=values.combine_chunks())
