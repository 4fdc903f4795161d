"""The table of a job: opened or created at its start, and published as the topic's.

The topic key `table.archived.offsets` is the floor of retention (`replica/topic_rules.py`). It is
always at or below the table's end, because it is written after a commit. The group has the same
offsets and only shows the lag. A failure is logged: the next commit publishes again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from pyiceberg.table import Table

from lakelog.base.errors import KafkaError
from lakelog.base.events import event
from lakelog.client.admin.api import Admin
from lakelog.client.admin.configs import ResourceType
from lakelog.tables.archive.dead_letters import DeadLettersError, open_dead_letters
from lakelog.tables.archive.failures import SyncError
from lakelog.tables.archive.location import KEYS, ends_text, owner_of
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


_log = logging.getLogger("lakelog.tables")
_CLIENT_ID = "lakelog-archive"
_TIMEOUT_S = 10.0
_CHECK_S = 30.0


def group_of(table: str) -> str:
    """Return the name of the group that shows the lag of a table."""
    return f"lakelog-table-{table}"


def keys_of(topic: str, table: str, warehouse: Warehouse) -> dict[str, str]:
    """Return the topic keys that name a table of a warehouse as the topic's."""
    folder = str(warehouse.folder)
    is_default = warehouse.location == warehouse.folder.as_uri()
    return {
        "table.name": "" if table == topic else table,
        "table.warehouse": folder if is_default else warehouse.location,
        "table.catalog": "" if is_default else folder,
    }


@dataclass(slots=True)
class Publication:
    """The publication of one job.

    warehouse: the warehouse of the job's table. notice: called with lines for the user.
    """

    bootstrap: str
    topic: str
    table: str
    warehouse: Warehouse
    notice: Callable[[str], None]
    _is_enabled: bool = False
    _last: dict[int, int] = field(default_factory=dict)
    _other: str = ""
    _next_check: float = 0.0

    def claim(self) -> None:
        """Make this the topic's table if the topic's keys name none; a job calls it once.

        They name it also without `table.enable`, for the commands of `lakelog table`. A job into
        another table than the topic's publishes nothing: records that only this table has must not
        be deleted. Raises `KafkaError`, and `SyncError` for a table of another topic.
        """
        with self._admin() as admin:
            self._claim(admin, also_disabled=True)

    def _claim(self, admin: Admin, *, also_disabled: bool = False) -> None:
        """Look at the topic's keys; they may have changed.

        also_disabled: name the table of a topic whose archive is disabled. A running job does not:
        the keys of a dropped table would return.
        """
        self._is_enabled = False
        self._next_check = time.monotonic() + _CHECK_S
        entries = admin.configs.describe(ResourceType.TOPIC, self.topic, keys=KEYS)
        values = {key: entry.value or "" for key, entry in entries.items()}
        is_enabled = values.get("table.enable") == "true"
        # The brokers of Apache Kafka have no such keys.
        if not is_enabled and not (also_disabled and "table.enable" in values):
            return
        own = keys_of(self.topic, self.table, self.warehouse)
        given = {key: values.get(key, "") for key in own}
        if not given["table.warehouse"]:
            self._check_free()
            admin.configs.alter(ResourceType.TOPIC, self.topic, own)
        elif not self._is_same(given):
            other = f"{given['table.name'] or self.topic} of {given['table.warehouse']}"
            if other != self._other:
                users = "retention and queries" if is_enabled else "the commands of lakelog table"
                self.notice(
                    f"{self.topic}: this run archives into {self.table} of "
                    f"{self.warehouse.location}, but the topic's table is {other}; {users} "
                    "use that one"
                )
            self._other = other
            return
        self._is_enabled = is_enabled

    def _check_free(self) -> None:
        """Raise `SyncError` if the table is another topic's, which has claimed it first."""
        address = TableAddress(self.warehouse.catalog, (NAMESPACE, self.table))
        with TopicClient(self.bootstrap, client_id=_CLIENT_ID) as client:
            owner = owner_of(client, address, besides=self.topic)
        if owner is not None:
            raise SyncError(
                f"{NAMESPACE}.{self.table} of {self.warehouse.location} is the table of topic "
                f"{owner!r}: set the key table.name of topic {self.topic!r} to another name"
            )

    def follow(self, ends: Mapping[int, int]) -> None:
        """Publish `ends` if the topic's keys name this table since the last check.

        Without it a topic that is enabled while nothing is produced would have no table. The keys
        are checked every 30 seconds at most.
        """
        if time.monotonic() < self._next_check:
            return
        was_enabled = self._is_enabled
        self._next_check = time.monotonic() + _CHECK_S
        with suppress(KafkaError), self._admin() as admin:  # the next check follows
            self._claim(admin)
        if self._is_enabled and not was_enabled:
            self._last = {}
            self.publish(ends)

    def publish(self, ends: Mapping[int, int]) -> None:
        """Publish the first offset of each partition that is not archived."""
        if dict(ends) == self._last:
            return
        try:
            with self._admin() as admin:
                # The keys may have changed: a table that is no longer the topic's has no floor.
                self._claim(admin)
                if self._is_enabled:
                    value = {"table.archived.offsets": ends_text(ends)}
                    admin.configs.alter(ResourceType.TOPIC, self.topic, value)
                offsets = {(self.topic, partition): end for partition, end in ends.items()}
                admin.groups.commit(group_of(self.table), offsets)
        except KafkaError as error:
            _log.warning(
                "the end of the table of %r is not published, so retention waits: %s",
                self.topic,
                error,
                extra=event("archive_end_unpublished", topic=self.topic),
            )
            return
        self._last = dict(ends)

    def _is_same(self, given: Mapping[str, str]) -> bool:
        own = keys_of(self.topic, self.table, self.warehouse)
        names = {given["table.name"] or self.topic, own["table.name"] or self.topic}
        places = {
            (keys["table.warehouse"].rstrip("/"), keys["table.catalog"]) for keys in (given, own)
        }
        return len(names) == 1 and len(places) == 1

    def _admin(self) -> Admin:
        return Admin(self.bootstrap, client_id=_CLIENT_ID, timeout_s=_TIMEOUT_S)
