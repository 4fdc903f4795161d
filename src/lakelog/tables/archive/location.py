"""The place of a topic's table, which the topic's configuration names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.warehouse import NAMESPACE, Warehouse, warehouse_at
from lakelog.tables.topic.client import TopicClient

KEYS = (
    "table.enable",
    "table.name",
    "table.warehouse",
    "table.catalog",
    "table.archived.offsets",
)


@dataclass(frozen=True, slots=True)
class TableLocation:
    """The table that archives a topic.

    warehouse: a folder or URI. catalog: the local folder of the catalog; empty if it is the
    warehouse. published: the ends that the archive job has published to the brokers. is_enabled:
    the topic has `table.enable`, so retention and queries use the table.
    """

    topic: str
    name: str
    warehouse: str
    catalog: str
    published: Mapping[int, int]
    is_enabled: bool = True

    @property
    def address(self) -> TableAddress:
        """The address of the table, whatever its UUID. Raises `ValueError` as `warehouse_at`."""
        warehouse: Warehouse = warehouse_at(self.warehouse, self.catalog or None)
        return TableAddress(warehouse.catalog, (NAMESPACE, self.name))


def find_locations(
    client: TopicClient, topics: Iterable[str], *, also_disabled: bool = False
) -> dict[str, TableLocation]:
    """Return the places of the tables of those topics that have `table.enable` and a warehouse.

    also_disabled: return the places that topics without `table.enable` name, too. Raises
    `KafkaError`. Apache Kafka has no such keys, so its topics have no place.
    """
    places = {}
    for topic, values in client.configs(topics, KEYS).items():
        warehouse = values.get("table.warehouse") or ""
        is_enabled = values.get("table.enable") == "true"
        if warehouse and (also_disabled or is_enabled):
            places[topic] = TableLocation(
                topic,
                values.get("table.name") or topic,
                warehouse,
                values.get("table.catalog") or "",
                parse_ends(values.get("table.archived.offsets") or ""),
                is_enabled,
            )
    return places


def owner_of(client: TopicClient, address: TableAddress, *, besides: str) -> str | None:
    """Return another topic than `besides` whose keys name this table, if any.

    Raises `KafkaError`.
    """
    for topic, table in find_locations(client, client.topics()).items():
        if topic != besides and table.address == address:
            return topic
    return None


def parse_ends(text: str) -> dict[int, int]:
    """Return the offsets in a value of `table.archived.offsets`. Raises `ValueError`."""
    pairs = (item.split(":") for item in text.split(",") if item.strip())
    return {int(partition): int(offset) for partition, offset in pairs}


def ends_text(ends: Mapping[int, int]) -> str:
    """Return the value of `table.archived.offsets` for these ends."""
    return ",".join(f"{partition}:{end}" for partition, end in sorted(ends.items()))
