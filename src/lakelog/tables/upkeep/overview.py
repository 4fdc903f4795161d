"""The size of a table, and how far it is behind its topic."""

from __future__ import annotations

from dataclasses import dataclass

from lakelog.tables.archive.progress import Extent
from lakelog.tables.hybrid.archives import TopicArchive
from lakelog.tables.iceberg.partition_spec import spec_text
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.upkeep.compaction import TARGET_BYTES


@dataclass(frozen=True, slots=True)
class PartitionOverview:
    """One partition: the table holds [start, end), the log holds [log_start, log_end)."""

    partition: int
    start: int
    end: int
    log_start: int
    log_end: int

    @property
    def lag(self) -> int:
        """Offsets of the log that are not archived."""
        return max(0, self.log_end - max(self.end, self.log_start))

    @property
    def only_in_table(self) -> int:
        """Archived offsets that the log no longer has."""
        return max(0, min(self.log_start, self.end) - self.start)


@dataclass(frozen=True, slots=True)
class Overview:
    """One version of a table. size: bytes of its files. small_files: to be compacted.
    partition_by: the terms of its partition spec."""

    rows: int
    files: int
    size: int
    small_files: int
    snapshots: int
    partition_by: str
    partitions: tuple[PartitionOverview, ...]


def overview(client: TopicClient, archive: TopicArchive) -> Overview:
    """Return the numbers of a table and of its topic's log.

    Partitions of which nothing is archived are included. Raises `TopicMissingError`, `KafkaError`
    and `OSError`.
    """
    table = archive.table
    partitions = {
        *archive.progress.extents,
        *client.describe([archive.topic])[archive.topic].partitions,
    }
    keys = [(archive.topic, partition) for partition in sorted(partitions)]
    starts, ends = client.earliest(keys), client.latest(keys)
    none = {partition: Extent(start, start) for (_, partition), start in starts.items()}
    extents = {**none, **archive.progress.extents}
    sizes = [task.file.file_size_in_bytes for task in table.scan().plan_files()]
    snapshot = table.current_snapshot()
    rows = 0 if snapshot is None or snapshot.summary is None else snapshot.summary["total-records"]
    return Overview(
        rows=int(rows or 0),
        files=len(sizes),
        size=sum(sizes),
        small_files=sum(size < TARGET_BYTES * 3 // 4 for size in sizes),
        snapshots=len(table.metadata.snapshots),
        partition_by=spec_text(table),
        partitions=tuple(
            PartitionOverview(p, extents[p].start, extents[p].end, starts[t, p], ends[t, p])
            for t, p in keys
        ),
    )
