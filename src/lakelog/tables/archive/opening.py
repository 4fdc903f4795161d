"""Opens the table of an archive job, creating it first if it is missing."""

from __future__ import annotations

from pyiceberg.table import Table

from lakelog.tables.archive.failures import SyncError
from lakelog.tables.archive.job import ArchiveJob
from lakelog.tables.archive.progress import archived_topic_ids
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.table import admit_null_timestamps, ensure_table
from lakelog.tables.iceberg.warehouse import NAMESPACE, Warehouse
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.typed.columns import typed_fields

_TASKS = 2
_FORMAT = "table.value.format"


def open_job(
    bootstrap: str,
    topic: str,
    place: Warehouse,
    table: str,
    *,
    batch_bytes: int,
    file_bytes: int,
    skip_lost: bool,
    null_timestamps: bool,
) -> ArchiveJob:
    """Return the job that archives `topic` into the table `lakelog.<table>` of a warehouse.

    Raises `TopicMissingError`, `KafkaError` when the cluster does not answer, `SyncError` when the
    table holds another topic's records, and `ValueError` when the warehouse cannot be used or the
    table does not fit.
    """
    with TopicClient(bootstrap, client_id="lakelog-archive") as client:
        meta = client.describe([topic])[topic]
        is_json = client.configs([topic], [_FORMAT]).get(topic, {}).get(_FORMAT) == "json"
    catalog = place.catalog
    identifier = (NAMESPACE, table)
    loaded = _open_table(place, TableAddress(catalog, identifier))
    others = archived_topic_ids(loaded.properties) - {meta.topic_id}
    if others:
        raise SyncError(
            f"the table {NAMESPACE}.{table} holds another topic's records (topic id "
            f"{', '.join(sorted(others))}; {topic!r} is {meta.topic_id} now, perhaps because it "
            "was deleted and created again): archive into a table of another name"
        )
    if is_json:
        typed_fields(loaded)
    uuid = str(loaded.metadata.table_uuid)
    address = TableAddress(catalog, identifier, uuid)
    return ArchiveJob(
        bootstrap=bootstrap,
        topic=topic,
        topic_id=meta.topic_id,
        catalog=catalog,
        identifier=identifier,
        location=loaded.location(),
        batch_bytes=batch_bytes,
        tasks=_TASKS,
        skip_lost=skip_lost,
        raw_timestamp_id=admit_null_timestamps(address) if null_timestamps else 0,
        uuid=uuid,
        extents={},
        file_bytes=file_bytes,
        is_json=is_json,
    )


def _open_table(place: Warehouse, address: TableAddress) -> Table:
    """Raises `ValueError` if the warehouse cannot be used or the table is in another one."""
    try:
        table = ensure_table(address)
    except OSError as error:
        raise ValueError(f"the warehouse {place.location} cannot be used: {error}") from error
    if not table.location().startswith(f"{place.location}/"):
        raise ValueError(
            f"the table {'.'.join(address.identifier)} is at {table.location()} already, not in "
            f"{place.location}: archive into a table of another name"
        )
    return table
