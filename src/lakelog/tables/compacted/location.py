"""The place and the settings of a topic's table of newest records, from the topic's keys."""

from __future__ import annotations

from dataclasses import dataclass

from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.topic.client import TopicClient

ENABLED, NAME = "table.latest", "table.latest.name"
BUCKETS, INTERVAL = "table.latest.buckets", "table.latest.interval.ms"
KEYS = (ENABLED, NAME, BUCKETS, INTERVAL)
SUFFIX = "_latest"
"""By default the name of the table is that of the archive's table with this suffix."""


@dataclass(frozen=True, slots=True)
class CompactedTableLocation:
    """A table of newest records.

    address: whatever its UUID. buckets: of a new table. interval_s: between refreshes of a job.
    """

    address: TableAddress
    buckets: int
    interval_s: float


def find_compacted(
    client: TopicClient, topic: str, archive: TableAddress, *, also_disabled: bool = False
) -> CompactedTableLocation | None:
    """Return the place beside the archive's table; `None` unless `table.latest` is set.

    also_disabled: return the place in which a table may have stayed, too. Raises `KafkaError`.
    Apache Kafka has no such keys.
    """
    values = client.configs([topic], KEYS).get(topic, {})
    if ENABLED not in values or (values[ENABLED] != "true" and not also_disabled):
        return None
    namespace, name = archive.identifier
    address = TableAddress(archive.catalog, (namespace, values.get(NAME) or name + SUFFIX))
    interval_ms = int(values[INTERVAL] or 0)
    return CompactedTableLocation(address, int(values[BUCKETS] or 0), interval_ms / 1000)
