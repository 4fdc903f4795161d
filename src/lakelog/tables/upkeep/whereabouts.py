"""Finds the tables of topics, by keys and in catalogs, and describes them.

The archive job names its table in the topic's keys. Tables of topics without these keys, because
a broker has none or a user has reset them, are recognised by the topic id in their properties.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from lakelog.tables.archive.dead_letters import has_dead_letters
from lakelog.tables.archive.location import TableLocation, find_locations
from lakelog.tables.archive.progress import Extent, archived_topic_ids, read_progress
from lakelog.tables.compacted.table import find_table
from lakelog.tables.hybrid.archives import TopicArchive
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.catalog import open_catalog
from lakelog.tables.iceberg.table import rows_in, spec_text
from lakelog.tables.iceberg.warehouse import NAMESPACE, warehouse_at
from lakelog.tables.topic.client import TopicClient, TopicMeta
from lakelog.tables.upkeep.compaction import TARGET_BYTES

Folders = Iterable[tuple[str, str]]
"""Warehouses, each with the local folder of its catalog (empty: the warehouse)."""


def named_locations(
    client: TopicClient, topics: Mapping[str, TopicMeta]
) -> dict[str, TableLocation]:
    """Return the places that the topics' keys name, except of tables that were dropped.

    The table itself has the ends of a disabled archive, if this host has its catalog. Raises
    `KafkaError`, and as `find_table`.
    """
    places = {}
    for topic, named in find_locations(client, topics, also_disabled=True).items():
        table = named if named.is_enabled else _with_ends(named, topics[topic].topic_id)
        if table is not None:
            places[topic] = table
    return places


def stored_locations(topics: Mapping[str, TopicMeta], folders: Folders) -> dict[str, TableLocation]:
    """Return the places of tables in these warehouses that hold the records of the topics.

    A table with the topic's name precedes others. Raises as `find_table`, and `ValueError` as
    `warehouse_at`.
    """
    topic_of = {meta.topic_id: topic for topic, meta in topics.items()}
    places: dict[str, TableLocation] = {}
    for warehouse, catalog in folders:
        for name, topic_ids in _archives_in(warehouse, catalog).items():
            for topic in (topic_of[topic_id] for topic_id in topic_ids if topic_id in topic_of):
                listed = TableLocation(topic, name, warehouse, catalog, {}, is_enabled=False)
                table = _with_ends(listed, topics[topic].topic_id)
                if table is not None and (topic not in places or name == topic):
                    places[topic] = table
    return places


def _archives_in(warehouse: str, catalog: str) -> dict[str, set[str]]:
    """Return the names of a warehouse's tables of archives with the ids of their topics."""
    properties = warehouse_at(warehouse, catalog or None).catalog
    if not TableAddress(properties, (NAMESPACE, "")).catalog_exists():
        return {}
    opened = open_catalog(properties)
    if not opened.namespace_exists(NAMESPACE):
        return {}
    archives = {}
    for _, name in sorted(opened.list_tables(NAMESPACE)):
        table = find_table(TableAddress(properties, (NAMESPACE, name)))
        if table is not None and not has_dead_letters(table):
            archives[name] = archived_topic_ids(table.properties)
    return archives


def _with_ends(listed: TableLocation, topic_id: str) -> TableLocation | None:
    """Return the place with the ends that its table holds; `None` if the table was dropped.

    Without access to the catalog the place is returned as it is.
    """
    if not listed.address.catalog_exists():
        return listed
    table = find_table(listed.address)
    if table is None:
        return None
    return replace(listed, published=read_progress(table.properties, topic_id).ends)


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
    return Overview(
        rows=rows_in(table),
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
