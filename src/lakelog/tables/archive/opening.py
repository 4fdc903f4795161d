"""Opens the table of an archive job, creating it first if it is missing."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.table import Table

from lakelog.tables.archive.dead_letters import DeadLettersError, open_dead_letters
from lakelog.tables.archive.failures import SyncError
from lakelog.tables.archive.progress import ArchiveJob, archived_topic_ids
from lakelog.tables.archive.refusals import KEY, OnBadRecord
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.columns import PartitionTerm, parse_terms
from lakelog.tables.iceberg.table import admit_null_timestamps, ensure_table, terms_of
from lakelog.tables.iceberg.warehouse import NAMESPACE, Warehouse
from lakelog.tables.registry.client import (
    RegistryAccessError,
    RegistryAddress,
    RegistryUnavailableError,
    SchemaMissingError,
    UnsupportedSchemaError,
)
from lakelog.tables.registry.schemas import schemas_of
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.topic.errors import OptionError
from lakelog.tables.typed.columns import typed_fields

_TASKS = 2
_FORMAT = "table.value.format"
PARTITION_BY = "table.partition_by"
"""The topic key with the terms of a new table's partition spec."""
_LATEST = "registry-latest"
_REGISTRY_ERRORS = (
    RegistryAccessError,
    RegistryUnavailableError,
    SchemaMissingError,
    UnsupportedSchemaError,
)
_REGISTRY_URL = "table.schema.registry.url"
_KEYS = (_FORMAT, _REGISTRY_URL, KEY, PARTITION_BY)


def open_job(
    bootstrap: str,
    topic: str,
    warehouse: Warehouse,
    table: str,
    *,
    batch_bytes: int,
    file_bytes: int,
    skip_lost: bool,
    null_timestamps: bool,
    errors: OnBadRecord | None = None,
) -> ArchiveJob:
    """Return the job that archives `topic` into the table `lakelog.<table>` of a warehouse.

    errors: how to treat records that cannot be rows; by default as the topic's key says.

    Raises `TopicMissingError`, `KafkaError` when the cluster does not answer, `SyncError` when a
    table holds another topic's records or the registry lacks the topic's schema, and `ValueError`
    when the warehouse cannot be used, the table does not fit, or a key has an unusable value.
    """
    with TopicClient(bootstrap, client_id="lakelog-archive") as client:
        meta = client.describe([topic])[topic]
        keys = client.configs([topic], _KEYS).get(topic, {})
    is_json = keys.get(_FORMAT) == "json"
    registry = _registry(topic, keys)
    version = _newest_version(topic, registry) if keys.get(_FORMAT) == _LATEST else 0
    errors = errors or OnBadRecord.named(keys.get(KEY) or OnBadRecord.STOP.value)
    terms = parse_terms(filter(None, (keys.get(PARTITION_BY) or "").split(",")))
    catalog = warehouse.catalog
    identifier = (NAMESPACE, table)
    loaded = _open_table(warehouse, TableAddress(catalog, identifier), terms)
    _check_topic(loaded, topic, meta.topic_id)
    if is_json or registry:
        typed_fields(loaded)
    uuid = str(loaded.metadata.table_uuid)
    address = TableAddress(catalog, identifier, uuid)
    dead_letters_location, dead_letters_uuid = _dead_letters(address, meta.topic_id, errors)
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
        registry_url=registry.url if registry else "",
        registry_user_info=registry.user_info if registry else "",
        registry_version=version,
        errors=errors.value,
        dead_letters_location=dead_letters_location,
        dead_letters_uuid=dead_letters_uuid,
        partition_by=tuple(map(str, terms_of(loaded))),
    )


def _check_topic(table: Table, topic: str, topic_id: str) -> None:
    """Raise `SyncError` if the table holds another topic's records."""
    others = archived_topic_ids(table.properties) - {topic_id}
    if others:
        raise SyncError(
            f"the table {'.'.join(table.name())} holds another topic's records (topic id "
            f"{', '.join(sorted(others))}; {topic!r} is {topic_id} now, perhaps because it was "
            "deleted and created again): archive into a table of another name"
        )


def _registry(topic: str, keys: Mapping[str, str | None]) -> RegistryAddress | None:
    """Return the schema registry of a topic's values. Raises `OptionError` and `ValueError`."""
    chosen = keys.get(_FORMAT)
    if chosen not in ("registry", _LATEST):
        return None
    url = keys.get(_REGISTRY_URL)
    if not url:
        raise OptionError(
            f"{_FORMAT} of the topic {topic!r} is {chosen}, but {_REGISTRY_URL} is not set: run "
            f"lakelog topic alter {topic} --config {_REGISTRY_URL}=http://HOST:PORT"
        )
    return RegistryAddress.from_environment(url)


def _newest_version(topic: str, registry: RegistryAddress | None) -> int:
    """Return the version that the job decodes values with. Raises `SyncError`."""
    assert registry is not None, "the format needs a registry"
    try:
        schemas = schemas_of(registry)
        newest = schemas.newest(f"{topic}-value")
        schemas.get(newest)
    except _REGISTRY_ERRORS as error:
        raise SyncError(str(error)) from error
    return newest.version


def _dead_letters(address: TableAddress, topic_id: str, errors: OnBadRecord) -> tuple[str, str]:
    """Return location and UUID of the table of dead letters, if the job needs one."""
    if errors is not OnBadRecord.DEAD_LETTER:
        return "", ""
    try:
        dead_letters = open_dead_letters(address, topic_id)
    except DeadLettersError as error:
        raise SyncError(str(error)) from error
    return dead_letters.location(), str(dead_letters.metadata.table_uuid)


def _open_table(
    warehouse: Warehouse, address: TableAddress, terms: tuple[PartitionTerm, ...]
) -> Table:
    """Raises `ValueError` if the warehouse cannot be used or the table is in another one."""
    try:
        table = ensure_table(address, partition_by=terms)
    except OSError as error:
        raise ValueError(f"the warehouse {warehouse.location} cannot be used: {error}") from error
    if not table.location().startswith(f"{warehouse.location}/"):
        raise ValueError(
            f"the table {'.'.join(address.identifier)} is at {table.location()} already, not in "
            f"{warehouse.location}: archive into a table of another name"
        )
    return table
