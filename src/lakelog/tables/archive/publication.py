"""Publishes the end of a table: to the brokers for retention, and as a consumer group for its lag.

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

from lakelog.base.errors import KafkaError
from lakelog.base.events import event
from lakelog.client.admin.api import Admin
from lakelog.client.admin.configs import ResourceType
from lakelog.tables.archive.failures import SyncError
from lakelog.tables.archive.location import KEYS, ends_text, owner_of
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.warehouse import NAMESPACE, Warehouse
from lakelog.tables.topic.client import TopicClient

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
