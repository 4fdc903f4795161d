"""Gives a topic a table, and takes it away: the topic's keys and the table itself.

A table without its files would break its readers, and files without a table cannot be found again.
So a table whose files are deleted is renamed first, by one change of the catalog, and leaves the
catalog before its last file, which is the metadata that the catalog loads. After a failure between
the two, `remove` finds it by that name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.io import FileIO
from pyiceberg.table import Table

from lakelog.client.admin.api import Admin
from lakelog.client.admin.configs import ResourceType
from lakelog.tables.archive.dead_letters import dead_letters_of, find_dead_letters, has_dead_letters
from lakelog.tables.archive.location import KEYS, TableLocation, find_locations, owner_of
from lakelog.tables.archive.progress import Extent, archived_topic_ids, read_progress
from lakelog.tables.archive.publication import PARTITION_BY, group_of, keys_of
from lakelog.tables.compacted.table import ENABLED, find_table
from lakelog.tables.compacted.table import KEYS as COMPACTED_KEYS
from lakelog.tables.hybrid.archives import TopicArchive
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.catalog import open_catalog
from lakelog.tables.iceberg.columns import parse_terms
from lakelog.tables.iceberg.stored_files import stored_files
from lakelog.tables.iceberg.table import ensure_table, rows_in, spec_text
from lakelog.tables.iceberg.warehouse import NAMESPACE, Warehouse, warehouse_at
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


_SUFFIX = "~dropped"
"""No table of a topic has a name with this character (`warehouse.check_table_name`)."""


def remove(address: TableAddress, *, purge: bool) -> int:
    """Remove the table, if it exists, and complete a removal that failed; return deleted files.

    purge: delete the files, too. Raises `ValueError` if other tables or the catalog are among them,
    `OSError` and the errors of the catalog; then repeat it.
    """
    if not address.catalog_exists():
        return 0
    catalog, renamed = open_catalog(address.catalog), _renamed(address)
    deleted = _delete(catalog, renamed)
    with suppress(NoSuchTableError, NoSuchNamespaceError):
        if not purge:
            catalog.drop_table(address.identifier)
            return deleted
        _check_alone(catalog, address, catalog.load_table(address.identifier))
        catalog.rename_table(address.identifier, renamed.identifier)
    return deleted + _delete(catalog, renamed)


def is_unfinished(address: TableAddress) -> bool:
    """Return whether a removal has not deleted all files, and there is no new table.

    Raises the errors of the catalog.
    """
    return not address.exists() and address.catalog_exists() and _is_listed(_renamed(address))


def _renamed(address: TableAddress) -> TableAddress:
    namespace, name = address.identifier
    return replace(address, identifier=(namespace, name + _SUFFIX), uuid="")


def _is_listed(address: TableAddress) -> bool:
    """Return whether the catalog has the table, without an access to its files."""
    catalog = open_catalog(address.catalog)
    namespace = address.identifier[0]
    return catalog.namespace_exists(namespace) and address.identifier in catalog.list_tables(
        namespace
    )


def _delete(catalog: Catalog, address: TableAddress) -> int:
    """Delete the files of a renamed table and its entry; return how many files."""
    count = 0
    with suppress(NoSuchTableError, NoSuchNamespaceError):
        table = catalog.load_table(address.identifier)
        # A job that has not yet seen that its archive is disabled may add files meanwhile.
        while deleted := sum(_delete_file(table.io, path) for path in _paths(table)):
            count += deleted
        catalog.drop_table(address.identifier)
        count += _delete_file(table.io, table.metadata_location)
    return count


def _paths(table: Table) -> list[str]:
    """Return the files of the table without the metadata file, which the catalog loads."""
    files = stored_files(table.io, table.location())
    return [file.path for file in files if file.path != table.metadata_location]


def _delete_file(io: FileIO, path: str) -> bool:
    """Return false if the file does not exist any more."""
    with suppress(FileNotFoundError):
        io.delete(path)
        return True
    return False


def _check_alone(catalog: Catalog, address: TableAddress, table: Table) -> None:
    """Raise `ValueError` if the table's folder has files of the catalog or of other tables."""
    folder, file = _folder(table), address.catalog_file
    inside = [f"the catalog {file}"] if file and file.as_uri().startswith(folder) else []
    for other in _others(catalog, address):
        theirs = _folder(other)
        if theirs.startswith(folder) or folder.startswith(theirs):
            inside.append(f"the table {'.'.join(other.name())}")
    if inside:
        raise ValueError(
            f"the folder {table.location()} of the table also has {', '.join(inside)}: drop it "
            "without --purge, and delete its files by hand"
        )


def _others(catalog: Catalog, address: TableAddress) -> Iterator[Table]:
    """Yield the other tables of the catalog; leave out any whose metadata is missing."""
    for namespace in catalog.list_namespaces():
        for identifier in catalog.list_tables(namespace):
            if identifier != address.identifier:
                with suppress(NoSuchTableError, FileNotFoundError):
                    yield catalog.load_table(identifier)


def _folder(table: Table) -> str:
    location: str = table.location()
    return location.rstrip("/") + "/"


_ENABLING = ("table.enable", "table.archived.offsets", ENABLED)


def create(
    admin: Admin,
    client: TopicClient,
    topic: str,
    warehouse: Warehouse,
    name: str,
    partition_by: str | None = None,
    *,
    compacted: bool = False,
) -> TableAddress:
    """Create the table, unless it exists, and make it the topic's.

    partition_by: the value of `table.partition_by`; by default the topic's. compacted: set the key
    `table.latest`. From then on retention keeps the topic's records until they are archived. Raises
    as `ensure_table`, `ValueError` for the table of another topic and for an unknown term,
    `TopicMissingError`, `KafkaError`.
    """
    address = TableAddress(warehouse.catalog, (NAMESPACE, name))
    topic_id = client.describe([topic])[topic].topic_id
    owner = owner_of(client, address, besides=topic)
    if owner is not None:
        raise _taken(name, f"belongs to topic {owner!r}")
    if partition_by is None:
        partition_by = client.configs([topic], [PARTITION_BY]).get(topic, {}).get(PARTITION_BY)
    terms = parse_terms(filter(None, (partition_by or "").split(",")))
    table = ensure_table(address, partition_by=terms)
    if archived_topic_ids(table.properties) - {topic_id}:
        raise _taken(name, f"has rows of another topic, perhaps of an earlier {topic!r}")
    keys = {"table.enable": "true", **keys_of(topic, name, warehouse)}
    if compacted:
        keys[ENABLED] = "true"
    if terms:
        keys[PARTITION_BY] = ",".join(map(str, terms))
    admin.configs.alter(ResourceType.TOPIC, topic, keys)
    return replace(address, uuid=str(table.metadata.table_uuid))


def _taken(name: str, why: str) -> ValueError:
    return ValueError(f"the table {NAMESPACE}.{name} {why}: choose another name with --name")


def check_droppable(client: TopicClient, topic: str, listed: TableLocation) -> None:
    """Raise `ValueError` if the table at `listed` is not the topic's.

    A table with rows of another topic is not, nor an empty table that another topic names, too.
    Raises as `find_table`.
    """
    table = find_table(listed.address)
    if table is None:
        return
    archived = archived_topic_ids(table.properties)
    if archived - {client.describe([topic])[topic].topic_id}:
        raise ValueError(_of_another(listed.name, "has rows of another topic"))
    owner = None if archived else owner_of(client, listed.address, besides=topic)
    if owner is not None:
        raise ValueError(_of_another(listed.name, f"belongs to topic {owner!r}"))


def _of_another(name: str, why: str) -> str:
    return f"the table {NAMESPACE}.{name} {why}: set the key table.name to the topic's own table"


def drop(
    admin: Admin,
    topic: str,
    address: TableAddress,
    *,
    purge: bool,
    compacted: TableAddress | None = None,
    is_named: bool = True,
) -> int:
    """Take the table from the topic and drop it with its dead letters; return the deleted files.

    purge: delete its files, too. compacted: the table of newest records, which is dropped as well.
    is_named: the topic's keys name this table; otherwise they stay.

    The keys that enable the tables are reset first, so that jobs and queries leave them alone, and
    the keys that name them at the end: until then a repeated drop completes this one. Raises
    `OSError`, also if the catalog's file is missing, the errors of the catalog, and as `remove`.
    """
    if not address.catalog_exists():
        raise FileNotFoundError(
            f"the catalog {address.catalog_file} does not exist on this host: mount the warehouse, "
            "or run the command where the archive job runs"
        )
    if is_named:
        _reset(admin, topic, _ENABLING)
    # The group may have been deleted by a user, or never created.
    with suppress(Exception):
        admin.groups.delete(group_of(address.identifier[1]))
    dropped, dead_letters = [address], dead_letters_of(address)
    if find_dead_letters(address) is not None or is_unfinished(dead_letters):
        dropped.insert(0, dead_letters)
    # After the archive: a running refresh would create the table of newest records again.
    if compacted is not None:
        dropped.append(compacted)
    deleted = sum(remove(address, purge=purge) for address in dropped)
    if is_named:
        _reset(admin, topic, (*KEYS, *COMPACTED_KEYS))
    return deleted


def _reset(admin: Admin, topic: str, keys: Iterable[str]) -> None:
    admin.configs.alter(ResourceType.TOPIC, topic, dict.fromkeys(keys))
