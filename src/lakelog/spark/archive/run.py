"""Runs the archive's query of one topic, and restarts it after transient failures.

An error of Python arrives in Spark's text with its class and its message. If a Python process of
the query dies, Spark knows only that a pipe was closed, and for the planning process its text is
empty. The process then follows from Java's stack trace. How it died is known to the daemon of
PySpark alone, which drops the status.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException, StreamingQueryException

from lakelog.base.events import event
from lakelog.base.shortage import NO_SPACE
from lakelog.spark.archive.stream import FORMAT, ArchiveSource
from lakelog.tables.archive.commit import SyncProgress, state_of
from lakelog.tables.archive.dead_letters import SUFFIX
from lakelog.tables.archive.failures import FINAL, PASSING, Availability, SyncError
from lakelog.tables.archive.history import REFUSED, Skipped, skipped_between
from lakelog.tables.archive.progress import Extent, read_progress
from lakelog.tables.archive.publication import Publication
from lakelog.tables.archive.reconcile import Reconciler
from lakelog.tables.archive.refusals import OnBadRecord
from lakelog.tables.topic.client import TopicClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_PYTHON_ERROR = re.compile(r"^(?:\w+\.)*(\w+(?:Error|Exception): .+)$", re.MULTILINE)
_JAVA_ERROR = re.compile(r"^(?:Caused by: )?(?:[\w$]+\.)+([\w$]+(?:Error|Exception))\b", re.M)
_MESSAGE = re.compile(r"terminated with exception: (.*?)(?: SQLSTATE: \w+)?$", re.MULTILINE)
_TASK_MESSAGE = re.compile(r"most recent failure: (.+)")
_PROCESSES = {
    "PythonStreamingSourceRunner": "the Python process that plans batches",
    "PythonStreamingSinkCommitRunner": "the Python process that commits batches",
}
"""By the class of Java that talks to the process."""
_CLOSED = ("EOFException", "SocketException", "ClosedChannelException")


def reason_of(error: StreamingQueryException) -> str:
    """Return the last Python error as `ClassName: message`, or else Spark's cause.

    Names the process that died, and the class of an error without a message.
    """
    text = str(error)
    python = _PYTHON_ERROR.findall(text)
    if python:
        return str(python[-1])
    trace = _trace(error)
    causes = _JAVA_ERROR.findall(trace)
    name = causes[-1] if causes else "an error without a message"
    process = next((_PROCESSES[marker] for marker in _PROCESSES if marker in trace), None)
    if process is not None and name in _CLOSED:
        return (
            f"{process} ended unexpectedly ({name}): it was killed, perhaps because memory ran "
            "out, or it crashed"
        )
    return _message(text) or f"Spark's query failed with {name}"


def _trace(error: StreamingQueryException) -> str:
    """Return Java's stack trace; empty over Spark Connect, which does not send it."""
    cause = getattr(error, "_cause", None)  # PySpark has no public name for it
    return str(getattr(cause, "_stackTrace", None) or "")


def _message(text: str) -> str:
    """Return the first line of the cause, without the words that are the same for all causes."""
    match = _MESSAGE.search(text)
    message = match[1] if match else text.strip().partition("\n")[0]
    task = _TASK_MESSAGE.search(message)
    return (task[1] if task else message).strip()


_log = logging.getLogger("lakelog.spark.archive")
_POLL_S = 0.5
_FAILURES_MAX = 3
_LEFTOVER_AGE_S = 86_400.0
_JAVA_GONE = (Py4JError, ConnectionError)
_JAVA_ENDED = "Spark's Java process ended unexpectedly"
_LOST_TAIL = ("LogDivergedError: ", "LogReplacedError: ")
_TOO_MANY = "TooManyPartitionsError: "
_LASTING = ("WarehouseFullError: ", "CatalogLockedError: ")
"""Errors that last until another program ends them, and then pass without a restart of the job."""
_NO_SPACE = tuple(map(os.strerror, NO_SPACE))
"""Words of the operating system in errors of Java."""
_CONNECTION = ("UnreachableError: ", "ConnectionLostError: ", "RegistryUnavailableError: ")


@dataclass
class Run:
    """One archive job.

    The query always begins where the table ends, so its checkpoint holds nothing to keep. Every
    start gets a new checkpoint folder, because a killed query may still write to the previous one.
    """

    open_session: Callable[[], SparkSession]
    checkpoints: Path
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
        _remove_leftovers(self.checkpoints)

    @cached_property
    def _session(self) -> SparkSession:
        """The session, opened on first use: errors of table and log come before Java starts."""
        session = self.open_session()
        session.dataSource.register(ArchiveSource)
        # Java looks a source up in the active session of the calling thread, and this call sets
        # it: without it a query that a second thread starts does not find the source.
        session.createDataFrame([], "nothing int")
        return session

    def close(self) -> None:
        """Stop the session if it was opened. Errors of a JVM that is gone are ignored."""
        if "_session" in self.__dict__:
            with suppress(*_JAVA_GONE):
                self._session.stop()

    def watch(self) -> None:
        """Run and restart the query until the work is done or `stop` is set.

        A signal for the whole group of processes, as of `systemctl stop`, ends Java as well. Its
        errors after that are ignored: the table has all that was committed.

        Raises `SyncError`, and `KafkaError` if an outage of the broker exceeds the limit.
        """
        self._snapshot_id = state_of(self._job).snapshot_id
        try:
            while not self.stop.is_set():
                if self._attempt():
                    return
        except FINAL as error:
            raise SyncError(str(error)) from error
        except (*_JAVA_GONE, PySparkException) as error:
            if self.stop.is_set():
                return
            if isinstance(error, _JAVA_GONE):
                raise SyncError(_JAVA_ENDED) from error
            raise

    def _attempt(self) -> bool:
        """Run the query once; return whether the work is done.

        Return false after a transient failure, which is logged.
        """
        try:
            # Before each start, not only the first: the table may have been rolled back meanwhile.
            self._reconcile()
            return self._query()
        except StreamingQueryException as error:
            self._failed(reason_of(error))
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
        checkpoint = self.checkpoints / uuid.uuid4().hex
        query = self._start(checkpoint)
        try:
            while not self.stop.is_set():
                ended = query.awaitTermination(_POLL_S)
                self._report()
                if ended:
                    return True
        except _JAVA_GONE as error:
            # Not left to `_attempt`, which would count it as a failure of a connection.
            if not self.stop.is_set():
                raise SyncError(_JAVA_ENDED) from error
        finally:
            with suppress(*_JAVA_GONE):
                query.stop()
            shutil.rmtree(checkpoint, ignore_errors=True)
        return False

    def _start(self, checkpoint: Path) -> Any:
        properties = self._job.address.load().properties
        extents: dict[int, Extent] = dict(read_progress(properties, self._job.topic_id).extents)
        # The source runs in another process, which gets the table's end with the job.
        tasks = _tasks_at_once(self._session)
        batch_bytes = self._batch_bytes or self._job.batch_bytes or tasks * self._job.file_bytes
        self._batch_bytes = batch_bytes
        job = replace(self._job, extents=extents, tasks=tasks, batch_bytes=batch_bytes)
        option = job.to_json()
        ranges = self._session.readStream.format(FORMAT).option("job", option).load()
        writer = ranges.writeStream.format(FORMAT).option("job", option)
        writer = writer.option("checkpointLocation", str(checkpoint))
        writer = writer.queryName(f"archive {self._job.topic} {checkpoint.name}")
        if self.every_s is None:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{self.every_s} seconds").start()

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
        # A lost tail is settled by the next `_reconcile`, so a pause would not help.
        if not reason.startswith(_LOST_TAIL):
            self.stop.wait(max(1, self._failures))


def _is_lasting(reason: str) -> bool:
    """Return whether a disk was full, of the warehouse or of checkpoints, or the catalog locked."""
    return reason.startswith(_LASTING) or any(text in reason for text in _NO_SPACE)


def _ranges(topic: str, skipped: Iterable[Skipped]) -> str:
    return ", ".join(f"{topic}-{p} [{start}, {end})" for p, start, end in skipped)


def _tasks_at_once(session: SparkSession) -> int:
    """Return how many tasks the cluster runs at once."""
    try:
        return int(session.sparkContext.defaultParallelism)
    except PySparkException:  # Spark Connect has no context
        return int(session.conf.get("spark.default.parallelism", "2") or 2)


def _remove_leftovers(checkpoints: Path) -> None:
    """Remove checkpoints older than a day: killed runs left them, and no running job uses them."""
    for leftover in checkpoints.glob("*"):
        with suppress(FileNotFoundError):  # another run removed it when it ended
            if time.time() - leftover.stat().st_mtime > _LEFTOVER_AGE_S:
                shutil.rmtree(leftover, ignore_errors=True)
