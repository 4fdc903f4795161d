"""The upkeep of archived tables beside their archive: compaction, then cleanup."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from lakelog.base.errors import KafkaError
from lakelog.tables.archive.history import ProgressMismatchError
from lakelog.tables.iceberg.exchange import UnknownOutcomeError
from lakelog.tables.iceberg.expiry import Policy
from lakelog.tables.iceberg.table import SNAPSHOTS_MAX
from lakelog.tables.joined.archives import TopicArchive, open_archives
from lakelog.tables.latest.table import own_latest
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.topic.errors import ArchiveUnreadableError
from lakelog.tables.upkeep.cleanup import clean_all
from lakelog.tables.upkeep.compaction import compact
from lakelog.tables.upkeep.failures import UNCHANGED

EVERY_S = 600.0
_FAILED = (
    *UNCHANGED,
    UnknownOutcomeError,
    ProgressMismatchError,
    ArchiveUnreadableError,
    KafkaError,
    ValueError,
)


@dataclass(slots=True)
class Upkeep:
    """The upkeep of the tables of one cluster, one table at a time.

    notice: called with a line for each failure of a new kind, and for each compaction.
    """

    bootstrap: str
    notice: Callable[[str], None]
    every_s: float = EVERY_S
    _next: dict[str, float] = field(default_factory=dict)
    _told: dict[str, str] = field(default_factory=dict)

    def run(self, topics: Iterable[str]) -> None:
        """Compact and clean up the tables that are due: each every `every_s` seconds."""
        for topic in topics:
            now = time.monotonic()
            if now < self._next.setdefault(topic, now + self.every_s):
                continue
            self._next[topic] = now + self.every_s
            try:
                self._keep_up(topic)
                self._told.pop(topic, None)
            except _FAILED as error:
                self._note_failure(topic, str(error))
            except Exception as error:  # noqa: BLE001 - one table must not end the archives
                self._note_failure(topic, f"{type(error).__name__}: {error}")

    def _note_failure(self, topic: str, text: str) -> None:
        if self._told.get(topic) != text:
            self.notice(f"{topic}: its table is not compacted or cleaned up: {text}")
        self._told[topic] = text

    def _keep_up(self, topic: str) -> None:
        with TopicClient(self.bootstrap, client_id="lakelog-archive") as client:
            archive: TopicArchive | None = open_archives(client, [topic]).get(topic)
            if archive is None:
                return
            latest = own_latest(client, archive)
        done = compact(archive.address, topic, archive.topic_id)
        if done.files_before:
            self.notice(
                f"{topic}: compacted {done.files_before} files of its table into {done.files_after}"
            )
        # As many as the archive itself keeps: it expires them at this number.
        clean_all(archive.address, Policy(SNAPSHOTS_MAX), time.time(), latest=latest)
