"""Gives a topic a table, and takes it away: the topic's keys and the table itself."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from pyiceberg.exceptions import NoSuchTableError

from lakelog.client.admin.api import Admin
from lakelog.client.admin.configs import ResourceType
from lakelog.tables.archive.dead_letters import find_letters, letters_address
from lakelog.tables.archive.opening import PARTITION_BY
from lakelog.tables.archive.place import KEYS, owner_of
from lakelog.tables.archive.progress import archived_topic_ids
from lakelog.tables.archive.publication import group_of, keys_of
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.catalog import open_catalog
from lakelog.tables.iceberg.listing import stored_files
from lakelog.tables.iceberg.partition_terms import parse_terms
from lakelog.tables.iceberg.table import ensure_table
from lakelog.tables.iceberg.warehouse import NAMESPACE, Warehouse
from lakelog.tables.latest.place import ENABLED
from lakelog.tables.latest.place import KEYS as LATEST_KEYS
from lakelog.tables.topic.client import TopicClient


def create(
    admin: Admin,
    client: TopicClient,
    topic: str,
    place: Warehouse,
    name: str,
    partition_by: str | None = None,
    *,
    latest: bool = False,
) -> TableAddress:
    """Create the table, unless it exists, and make it the topic's.

    partition_by: the value of `table.partition_by`; by default the topic's. latest: set the key
    `table.latest`. From then on retention keeps the topic's records until they are archived. Raises
    as `ensure_table`, `ValueError` for the table of another topic and for an unknown term,
    `TopicMissingError`, `KafkaError`.
    """
    address = TableAddress(place.catalog, (NAMESPACE, name))
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
    keys = {"table.enable": "true", **keys_of(topic, name, place)}
    if latest:
        keys[ENABLED] = "true"
    if terms:
        keys[PARTITION_BY] = ",".join(map(str, terms))
    admin.configs.alter(ResourceType.TOPIC, topic, keys)
    return replace(address, uuid=str(table.metadata.table_uuid))


def _taken(name: str, why: str) -> ValueError:
    return ValueError(f"the table {NAMESPACE}.{name} {why}: choose another name with --name")


def drop(
    admin: Admin,
    topic: str,
    address: TableAddress,
    *,
    purge: bool,
    latest: TableAddress | None = None,
) -> int:
    """Take the table from the topic and drop it with its dead letters; return the deleted files.

    purge: delete its files, too. latest: the table of newest records, which is dropped as well. The
    topic's keys are reset first: after a failure the topic has no table, and the drop can be
    repeated. Raises `OSError` and the errors of the catalog.
    """
    admin.configs.alter(ResourceType.TOPIC, topic, dict.fromkeys((*KEYS, *LATEST_KEYS)))
    # The group may have been deleted by a user, or never created.
    with suppress(Exception):
        admin.groups.delete(group_of(address.identifier[1]))
    dropped = [address] if find_letters(address) is None else [letters_address(address), address]
    # After the archive: a running refresh would create the table of newest records again.
    if latest is not None:
        dropped.append(latest)
    return sum(_drop(each, purge=purge) for each in dropped)


def _drop(address: TableAddress, *, purge: bool) -> int:
    catalog = open_catalog(address.catalog)
    try:
        table = catalog.load_table(address.identifier)
    except NoSuchTableError:
        return 0
    files = list(stored_files(table.io, table.location())) if purge else []
    catalog.drop_table(address.identifier)
    for file in files:
        with suppress(FileNotFoundError):
            table.io.delete(file.path)
    return len(files)
