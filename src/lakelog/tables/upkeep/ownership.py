"""Gives a topic a table, and takes it away: the topic's keys and the table itself.

A table without its files would break its readers, and files without a table cannot be found again.
So a table whose files are deleted is renamed first, by one change of the catalog, and leaves the
catalog before its last file, which is the metadata that the catalog loads. After a failure between
the two, `remove` finds it by that name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.io import FileIO
from pyiceberg.table import Table

from lakelog.client.admin.api import Admin
from lakelog.client.admin.configs import ResourceType
from lakelog.tables.archive.dead_letters import dead_letters_of, find_dead_letters
from lakelog.tables.archive.location import KEYS, TableLocation, owner_of
from lakelog.tables.archive.opening import PARTITION_BY
from lakelog.tables.archive.progress import archived_topic_ids
from lakelog.tables.archive.publication import group_of, keys_of
from lakelog.tables.compacted.table import ENABLED, find_table
from lakelog.tables.compacted.table import KEYS as COMPACTED_KEYS
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.catalog import open_catalog
from lakelog.tables.iceberg.columns import parse_terms
from lakelog.tables.iceberg.stored_files import stored_files
from lakelog.tables.iceberg.table import ensure_table
from lakelog.tables.iceberg.warehouse import NAMESPACE, Warehouse
from lakelog.tables.topic.client import TopicClient

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
