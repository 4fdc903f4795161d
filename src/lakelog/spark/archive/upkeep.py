"""The upkeep of archived tables beside their archive, one table at a time.

Compaction and cleanup follow one another. Tables of newest records are refreshed, which needs no
Spark. A refresh begins at the earliest `table.latest.interval.ms` after the last one: each rewrites
files, which a refresh after each commit of the archive would do too often.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from lakelog.base.errors import KafkaError
from lakelog.tables.archive.history import ProgressMismatchError
from lakelog.tables.archive.location import find_locations
from lakelog.tables.compacted.refresh import Refresh, Refreshed
from lakelog.tables.compacted.table import CompactedTableError, find_compacted, own_compacted
from lakelog.tables.hybrid.archives import TopicArchive, open_archives, open_locations
from lakelog.tables.iceberg.commits import Policy, UnknownOutcomeError
from lakelog.tables.iceberg.table import SNAPSHOTS_MAX
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.topic.errors import ArchiveUnreadableError
from lakelog.tables.upkeep.cleanup import clean_all
from lakelog.tables.upkeep.compaction import UNCHANGED, compact

EVERY_S = 600.0
FAILED = (
    *UNCHANGED,
    UnknownOutcomeError,
    ProgressMismatchError,
    ArchiveUnreadableError,
    CompactedTableError,
    KafkaError,
    ValueError,
)
"""The upkeep of a table failed; the table is as before, and the next attempt begins again."""


@dataclass(slots=True)
class _Failures:
    """The failures of one kind of upkeep.

    work: what fails, as the user reads it. notice: called with a line for each failure of a new
    kind.
    """

    work: str
    notice: Callable[[str], None]
    _noticed: dict[str, str] = field(default_factory=dict)

    @contextmanager
    def noticed(self, topic: str) -> Iterator[None]:
        """Notice an error of the block instead of raising it."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - one table must not end the archives
            text = str(error) if isinstance(error, FAILED) else f"{type(error).__name__}: {error}"
            if self._noticed.get(topic) != text:
                self.notice(f"{topic}: {self.work}: {text}")
            self._noticed[topic] = text
        else:
            self._noticed.pop(topic, None)


@dataclass(slots=True)
class Upkeep:
    """The upkeep of the tables of one cluster, one table at a time.

    notice: called with a line for each failure of a new kind, and for each compaction.
    """

    bootstrap: str
    notice: Callable[[str], None]
    every_s: float = EVERY_S
    _next: dict[str, float] = field(default_factory=dict)
    _failures: _Failures = field(init=False)

    def __post_init__(self) -> None:
        self._failures = _Failures("its table is not compacted or cleaned up", self.notice)

    def run(self, topics: Iterable[str]) -> None:
        """Compact and clean up the tables that are due: each every `every_s` seconds."""
        for topic in topics:
            now = time.monotonic()
            if now < self._next.setdefault(topic, now + self.every_s):
                continue
            self._next[topic] = now + self.every_s
            with self._failures.noticed(topic):
                self._keep_up(topic)

    def _keep_up(self, topic: str) -> None:
        with TopicClient(self.bootstrap, client_id="lakelog-archive") as client:
            archive: TopicArchive | None = open_archives(client, [topic]).get(topic)
            if archive is None:
                return
            compacted = own_compacted(client, archive)
        done = compact(archive.address, topic, archive.topic_id)
        if done.files_before:
            self.notice(
                f"{topic}: compacted {done.files_before} files of its table into {done.files_after}"
            )
        # As many as the archive itself keeps: it expires them at this number.
        clean_all(archive.address, Policy(SNAPSHOTS_MAX), time.time(), compacted=compacted)


_CHECK_S = 5.0
_UNKNOWN_S = 30.0
"""The time between questions whether a topic has such a table by now."""


@dataclass(slots=True)
class Refreshes:
    """The refreshes of one job.

    notice: called with a line for each refresh, and for each failure of a new kind. stop: ends a
    running refresh early.
    """

    bootstrap: str
    notice: Callable[[str], None]
    stop: threading.Event = field(default_factory=threading.Event)
    _next: dict[str, float] = field(default_factory=dict)
    _failures: _Failures = field(init=False)
    _with_compacted: set[str] = field(default_factory=set)
    """Topics that had such a table when they were asked last."""

    def __post_init__(self) -> None:
        self._failures = _Failures("its newest records are not refreshed", self.notice)

    @contextmanager
    def beside(self, topics: Callable[[], Iterable[str]]) -> Iterator[None]:
        """Refresh the tables of `topics()` in a thread while the caller's block runs."""
        thread = threading.Thread(target=self._watch, args=(topics,), name="refreshes")
        thread.start()
        try:
            yield
        finally:
            self.stop.set()
            thread.join()

    def _watch(self, topics: Callable[[], Iterable[str]]) -> None:
        while not self.stop.is_set():
            self.run(topics())
            self.stop.wait(_CHECK_S)

    def run(self, topics: Iterable[str]) -> None:
        """Refresh the tables that are due."""
        for topic in topics:
            if time.monotonic() < self._next.get(topic, 0.0) or self.stop.is_set():
                continue
            self._next[topic] = time.monotonic() + _UNKNOWN_S
            with self._failures.noticed(topic):
                try:
                    self.refresh(topic)
                except KafkaError:
                    # Nothing is missed while no broker answers whether the topic has a table.
                    if topic in self._with_compacted:
                        raise

    def refresh(self, topic: str) -> Refreshed | None:
        """Refresh a topic's table; return `None` if it has none, or no archive.

        Raises as `Refresh.run`, and `KafkaError`.
        """
        with TopicClient(self.bootstrap, client_id="lakelog-archive") as client:
            places = find_locations(client, [topic], also_disabled=True)
            archive = open_locations(client, places).get(topic)
            if archive is None:
                return None
            compacted = find_compacted(client, topic, archive.address)
        if compacted is None:
            self._with_compacted.discard(topic)
            return None
        self._with_compacted.add(topic)
        try:
            done = Refresh(compacted, self.notice, self.stop).run(archive)
        finally:
            self._next[topic] = time.monotonic() + compacted.interval_s
        if done.commits:
            table = ".".join(compacted.address.identifier)
            self.notice(f"{topic}: refreshed {table} with {done.rows} records")
        return done
