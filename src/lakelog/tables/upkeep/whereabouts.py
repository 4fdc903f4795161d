"""Finds the tables of topics: by the topics' keys, and in the catalogs of warehouses.

The archive job names its table in the topic's keys. Tables of topics without these keys, because
a broker has none or a user has reset them, are recognised by the topic id in their properties.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from lakelog.tables.archive.dead_letters import has_dead_letters
from lakelog.tables.archive.location import TableLocation, find_locations
from lakelog.tables.archive.progress import archived_topic_ids, read_progress
from lakelog.tables.compacted.table import find_table
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.catalog import open_catalog
from lakelog.tables.iceberg.warehouse import NAMESPACE, warehouse_at
from lakelog.tables.topic.client import TopicClient, TopicMeta

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
