"""`sync_enabled`: archives all topics with `table.enable=true`, until it is stopped.

One supervisor has one Spark session and one thread for each topic, which runs `sync_topic`. It asks
the brokers again and again which topics are enabled. A topic whose job fails does not disturb the
others: it starts again after a pause that grows. Outages of all brokers only delay the next answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakelog.base.errors import KafkaError
from lakelog.spark.archive.sync import sync_topic
from lakelog.spark.archive.upkeep import Refreshes, Upkeep
from lakelog.spark.session import local_session, require_java
from lakelog.tables.archive.commit import SyncProgress
from lakelog.tables.archive.failures import FINAL, PASSING, SyncError
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.topic.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CHECK_S = 5.0
_PAUSE_FIRST_S, _PAUSE_MAX_S = 10.0, 600.0
_KEYS = ("table.enable", "table.name", "table.warehouse", "table.catalog")
_EXPECTED = (*FINAL, *PASSING, SyncError, OptionError, ValueError)

Notice = Callable[[str], None]


@dataclass(slots=True)
class _Job:
    """The thread of one topic. `error`: the reason why it ended. `retry_at`: monotonic seconds."""

    thread: threading.Thread
    stop: threading.Event
    error: str = ""
    failures: int = 0
    retry_at: float = 0.0


@dataclass(slots=True)
class Supervisor:
    """Archives the enabled topics of a cluster.

    warehouse, catalog_folder: for topics whose keys name no warehouse. open_session: opens the
    session on the first topic. options: further arguments of `sync_topic`. upkeep: compaction and
    cleanup of the tables. refreshes: of their tables of newest records.
    """

    bootstrap: str
    warehouse: str
    catalog_folder: str | None
    session: SessionOnce
    options: Mapping[str, Any]
    progress: Callable[[str, SyncProgress], None]
    notice: Notice
    upkeep: Upkeep
    refreshes: Refreshes
    _jobs: dict[str, _Job] = field(default_factory=dict)
    _running: list[str] = field(default_factory=list)
    _is_away: bool = False

    def run(self, stop: threading.Event) -> None:
        """Supervise until `stop` is set; then end all jobs after their current commits."""
        try:
            with self.refreshes.beside(lambda: self._running):
                while not stop.is_set():
                    enabled = self._enabled()
                    if enabled is not None:
                        self._adjust(enabled, time.monotonic())
                    self._running = self._with_jobs(enabled or {})
                    self.upkeep.run(self._running)
                    stop.wait(_CHECK_S)
        finally:
            for job in self._jobs.values():
                job.stop.set()
            for job in self._jobs.values():
                job.thread.join()

    def _enabled(self) -> dict[str, Mapping[str, str | None]] | None:
        """Return the keys of the enabled topics; `None` if no broker answers."""
        try:
            with TopicClient(self.bootstrap, client_id="lakelog-archive") as client:
                topics = client.configs(client.topics(), _KEYS)
        except (KafkaError, OSError) as error:
            if not self._is_away:
                self.notice(f"no broker answers at {self.bootstrap} ({error}); waiting")
            self._is_away = True
            return None
        if self._is_away:
            self.notice("the brokers answer again")
        self._is_away = False
        return {topic: keys for topic, keys in topics.items() if keys.get("table.enable") == "true"}

    def _adjust(self, enabled: Mapping[str, Mapping[str, str | None]], now: float) -> None:
        """Start jobs of new topics and of failed ones whose pause is over; stop the others."""
        for topic, job in list(self._jobs.items()):
            if topic not in enabled:
                job.stop.set()
                if not job.thread.is_alive():
                    del self._jobs[topic]
                    self.notice(f"{topic}: its archive is no longer enabled")
        for topic, keys in sorted(enabled.items()):
            running = self._jobs.get(topic)
            if running is None:
                self._jobs[topic] = self._start(topic, keys, failures=0)
                self.notice(f"{topic}: archiving")
            elif running.thread.is_alive():
                continue
            elif running.stop.is_set():  # disabled, and enabled again before its job had ended
                self._jobs[topic] = self._start(topic, keys, failures=0)
            else:
                self._restart(topic, keys, running, now)

    def _restart(self, topic: str, keys: Mapping[str, str | None], job: _Job, now: float) -> None:
        if not job.retry_at:
            pause = min(_PAUSE_MAX_S, _PAUSE_FIRST_S * 2**job.failures)
            job.retry_at = now + pause
            self.notice(f"{topic}: {job.error or 'the job ended'}; next attempt in {pause:g} s")
        elif now >= job.retry_at:
            self._jobs[topic] = self._start(topic, keys, failures=job.failures + 1)

    def _start(self, topic: str, keys: Mapping[str, str | None], failures: int) -> _Job:
        stop = threading.Event()
        job = _Job(threading.Thread(), stop, failures=failures)
        job.thread = threading.Thread(
            target=self._archive, args=(topic, keys, job), name=f"archive {topic}"
        )
        job.thread.start()
        return job

    def _archive(self, topic: str, keys: Mapping[str, str | None], job: _Job) -> None:
        def progress(state: SyncProgress) -> None:
            job.failures = 0  # a commit shows that the cause of earlier failures is gone
            self.progress(topic, state)

        try:
            named = keys.get("table.warehouse") or ""
            sync_topic(
                self.bootstrap,
                topic,
                named or self.warehouse,
                catalog_folder=(keys.get("table.catalog") or None)
                if named
                else self.catalog_folder,
                table=keys.get("table.name") or topic,
                follow=True,
                is_supervised=True,
                spark=self.session.opened,
                progress=progress,
                notice=self.notice,
                stop=job.stop,
                **self.options,
            )
        except _EXPECTED as error:
            job.error = str(error)
        except Exception as error:  # noqa: BLE001 - one topic must not end the others
            job.error = f"{type(error).__name__}: {_first_line(error)}"

    def _with_jobs(self, enabled: Mapping[str, Mapping[str, str | None]]) -> list[str]:
        return [
            topic
            for topic, keys in enabled.items()
            if keys.get("table.warehouse") and topic in self._jobs
        ]


def _first_line(error: BaseException) -> str:
    """Return the first line of a message; Java's errors have a stack trace in theirs."""
    return next((line for line in str(error).splitlines() if line.strip()), "")


class SessionOnce:
    """A Spark session that the first topic opens. Threads share it."""

    def __init__(self, open_session: Callable[[], SparkSession]) -> None:
        self._open = open_session
        self._lock = threading.Lock()

    @cached_property
    def _session(self) -> SparkSession:
        return self._open()

    @property
    def opened(self) -> SparkSession:
        """The session; the first use opens it."""
        with self._lock:
            return self._session

    def stop(self) -> None:
        """Stop the session if it was opened."""
        if "_session" in self.__dict__:
            self._session.stop()


def sync_enabled(
    bootstrap: str,
    warehouse: str,
    *,
    catalog_folder: str | None = None,
    master: str = "local[2]",
    spark: SparkSession | None = None,
    progress: Callable[[str, SyncProgress], None],
    notice: Notice,
    stop: threading.Event,
    **options: Any,
) -> None:
    """Archive all topics with `table.enable=true` until `stop` is set.

    Args:
        warehouse: the folder or URI for topics whose keys name none.
        catalog_folder: the local folder of its catalog; required if it is remote.
        progress: is called with the topic and its state after each commit.
        notice: is called with a line for each event that the user should know.
        options: `every_s`, `skip_lost`, `null_timestamps`, `errors`, `is_warehouse_shared` of
            `sync_topic`.

    Raises `JavaMissingError`.
    """
    require_java()
    log = Path(catalog_folder or warehouse) / "spark.log"
    once = SessionOnce(
        lambda: spark or local_session("lakelog archive", log=_created(log), master=master)
    )
    upkeep = Upkeep(bootstrap, notice)
    supervisor = Supervisor(
        bootstrap,
        warehouse,
        catalog_folder,
        once,
        options,
        progress,
        notice,
        upkeep,
        Refreshes(bootstrap, notice),
    )
    try:
        supervisor.run(stop)
    finally:
        if spark is None:
            once.stop()


def _created(log: Path) -> Path:
    log.parent.mkdir(parents=True, exist_ok=True)
    return log
