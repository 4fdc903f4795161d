"""Runs the archive's query of one topic, and restarts it after transient failures."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace

from lakelog.base.errors import NO_SPACE
from lakelog.base.events import event
from lakelog.spark.archive.engine import Engine, EngineEndedError, Query, QueryFailedError
from lakelog.tables.archive.commit import SyncProgress, state_of
from lakelog.tables.archive.dead_letters import SUFFIX
from lakelog.tables.archive.failures import FINAL, PASSING, Availability, SyncError
from lakelog.tables.archive.history import REFUSED, skipped_between
from lakelog.tables.archive.progress import Extent, read_progress
from lakelog.tables.archive.publication import Publication
from lakelog.tables.archive.reconcile import Reconciler
from lakelog.tables.archive.refusals import OnBadRecord, Span
from lakelog.tables.topic.client import TopicClient

_log = logging.getLogger("lakelog.spark.archive")
_POLL_S = 0.5
_FAILURES_MAX = 3
_LOST_TAIL = ("LogDivergedError: ", "LogReplacedError: ")
_TOO_MANY = "TooManyPartitionsError: "
_LASTING = ("WarehouseFullError: ", "CatalogLockedError: ")
"""Errors that last until another program ends them, and then pass without a restart of the job."""
_NO_SPACE = tuple(map(os.strerror, NO_SPACE))
"""Words of the operating system in errors of Java."""
_CONNECTION = ("UnreachableError: ", "ConnectionLostError: ", "RegistryUnavailableError: ")


@dataclass
class ArchiveRun:
    """One archive job."""

    engine: Engine
    _: KW_ONLY
    every_s: float | None
    reconciler: Reconciler
    availability: Availability
    publication: Publication
    progress: Callable[[SyncProgress], None]
    stop: threading.Event
    rows_moved: int = 0
    _failures: int = 0
    _batch_bytes: int = 0
    _last_reason: str = ""
    _snapshot_id: int | None = None

    def __post_init__(self) -> None:
        self._job = self.reconciler.job

    def watch(self) -> None:
        """Run and restart the query until the work is done or `stop` is set.

        Once `stop` is set, the end of the engine is ignored: the table has all committed records.

        Raises `SyncError`, and `KafkaError` if an outage of the broker exceeds the limit.
        """
        self._snapshot_id = state_of(self._job).snapshot_id
        try:
            while not self.stop.is_set():
                if self._attempt():
                    return
        except FINAL as error:
            raise SyncError(str(error)) from error
        except EngineEndedError as error:
            if not self.stop.is_set():
                raise error.failure from error

    def _attempt(self) -> bool:
        """Run the query once; return whether the work is done.

        Return false after a transient failure, which is logged.
        """
        try:
            # Before each start, not only the first: the table may have been rolled back meanwhile.
            self._reconcile()
            return self._query()
        except QueryFailedError as error:
            self._failed(str(error))
        except FINAL:
            raise
        except PASSING as error:
            self._failed(f"{type(error).__name__}: {error}")
        return False

    def _reconcile(self) -> None:
        """Bring table and log into agreement; use `adopt` for the first rollback only."""
        with TopicClient(self._job.bootstrap, client_id="lakelog-archive") as client:
            self.rows_moved += self.reconciler.run(client)
        self.reconciler = replace(self.reconciler, adopt=None)
        state = state_of(self._job)
        self._note_skipped(state.snapshot_id)
        # Also the commits of a killed predecessor that did not publish them.
        self.publication.publish(state.ends)

    def _query(self) -> bool:
        """Run the query until it ends or `stop` is set; return whether it ended."""
        query = self._start()
        try:
            while not self.stop.is_set():
                ended = query.wait(_POLL_S)
                self._report()
                if ended:
                    return True
        finally:
            query.stop()
        return False

    def _start(self) -> Query:
        properties = self._job.address.load().properties
        extents: dict[int, Extent] = dict(read_progress(properties, self._job.topic_id).extents)
        # The source runs in another process, which gets the table's end with the job.
        tasks = self.engine.tasks
        batch_bytes = self._batch_bytes or self._job.batch_bytes or tasks * self._job.file_bytes
        self._batch_bytes = batch_bytes
        job = replace(self._job, extents=extents, tasks=tasks, batch_bytes=batch_bytes)
        return self.engine.start(job, self.every_s)

    def _report(self) -> None:
        state = state_of(self._job)
        if state.snapshot_id != self._snapshot_id:
            self._note_skipped(state.snapshot_id)
            # A commit shows that the cause of earlier failures is gone.
            self._failures, self._last_reason = 0, ""
            self.publication.publish(state.ends)
            self.progress(state)
        else:
            self.publication.follow(state.ends)

    def _note_skipped(self, newest: int | None) -> None:
        """Report the offsets that new commits skipped, up to the snapshot `newest`."""
        table, topic = self._job.address.load(), self._job.topic
        skipped = skipped_between(table, self._snapshot_id, newest)
        refused = skipped_between(table, self._snapshot_id, newest, REFUSED)
        self._snapshot_id = newest
        if skipped:
            self.reconciler.notice(
                f"{topic}: skipped {_ranges(topic, skipped)}: the topic lost these offsets before "
                "they were archived"
            )
        if refused:
            self._note_refused(_ranges(topic, refused))

    def _note_refused(self, ranges: str) -> None:
        """Report records that cannot be rows: the first of each commit."""
        topic = self._job.topic
        if self._job.errors == OnBadRecord.DEAD_LETTER.value:
            what = f"{ranges} are dead letters, in {'.'.join(self._job.identifier)}{SUFFIX}"
        else:
            what = f"left out {ranges}, which cannot be rows of the table"
        self.reconciler.notice(f"{topic}: {what}")
        _log.warning(
            "records of %r cannot be rows of its table: %s",
            topic,
            what,
            extra=event("archive_records_refused", topic=topic),
        )

    def _failed(self, reason: str) -> None:
        """Prepare for a restart: wait for an unreachable broker, or count the failure.

        A commit resets the count. Raises `SyncError` for a final error and after 3 failures.
        """
        with suppress(*PASSING):  # the table may be what failed
            self._report()
        final = next((kind for kind in FINAL if reason.startswith(f"{kind.__name__}: ")), None)
        if final is not None:
            # Errors of workers arrive as text that begins with the name of the class.
            raise SyncError(reason.removeprefix(f"{final.__name__}: "))
        if self.availability.wait(self.stop):
            return
        if reason.startswith(_TOO_MANY) and self._batch_bytes > 1:
            self._batch_bytes = max(1, self._batch_bytes // 4)
            self.reconciler.notice(
                f"{self._job.topic}: {reason.removeprefix(_TOO_MANY)}; the next batches have about "
                f"{self._batch_bytes} bytes. Coarser partitions make fewer files"
            )
            return
        if _is_lasting(reason) and self.every_s is None:
            raise SyncError(reason.partition(": ")[2] if reason.startswith(_LASTING) else reason)
        if (reason.startswith(_CONNECTION) or _is_lasting(reason)) and self.every_s is not None:
            # The broker is back, or only workers lost it. A full disk lasts until space is freed.
            if reason != self._last_reason:
                self.reconciler.notice(f"{self._job.topic}: {reason}; retrying")
            self._last_reason = reason
        else:
            self._failures += 1
        if self._failures >= _FAILURES_MAX:
            raise SyncError(reason)
        _log.warning(
            "restarting the archive job of %r: %s",
            self._job.topic,
            reason,
            extra=event("archive_job_restarted", topic=self._job.topic),
        )
        # A lost tail is resolved by the next `_reconcile`, so a pause would not help.
        if not reason.startswith(_LOST_TAIL):
            self.stop.wait(max(1, self._failures))


def _is_lasting(reason: str) -> bool:
    """Return whether a disk was full, of the warehouse or of checkpoints, or the catalog locked."""
    return reason.startswith(_LASTING) or any(text in reason for text in _NO_SPACE)


def _ranges(topic: str, skipped: Iterable[Span]) -> str:
    return ", ".join(f"{topic}-{p} [{start}, {end})" for p, start, end in skipped)
