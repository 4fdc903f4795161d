"""Gives a topic a table, and takes it away: the topic's keys and the table itself."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from lakelog.client.admin.api import Admin
from lakelog.client.admin.configs import ResourceType
from lakelog.tables.archive.dead_letters import dead_letters_of, find_dead_letters
from lakelog.tables.archive.location import KEYS, TableLocation, owner_of
from lakelog.tables.archive.opening import PARTITION_BY
from lakelog.tables.archive.progress import archived_topic_ids
from lakelog.tables.archive.publication import group_of, keys_of
from lakelog.tables.compacted.location import ENABLED
from lakelog.tables.compacted.location import KEYS as COMPACTED_KEYS
from lakelog.tables.compacted.table import find_table
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.partition_terms import parse_terms
from lakelog.tables.iceberg.table import ensure_table
from lakelog.tables.iceberg.warehouse import NAMESPACE, Warehouse
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.upkeep.removal import is_unfinished, remove

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
