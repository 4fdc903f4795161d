"""The engine that runs the query of an archive job: its interface, and the engine that is Spark.

A query plans batches, runs their tasks and commits them (`stream.py`). If it fails in Spark, an
error of Python arrives in Spark's text with its class and its message. If a Python process of the
query dies, Spark knows only that a pipe was closed, and for the planning process its text is empty.
The process then follows from Java's stack trace. How it died is known to the daemon of PySpark
alone, which drops the status.
"""

from __future__ import annotations

import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException, StreamingQueryException

from lakelog.spark.archive.stream import FORMAT, ArchiveSource
from lakelog.tables.archive.failures import SyncError
from lakelog.tables.archive.progress import ArchiveJob

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


class QueryFailedError(Exception):
    """A query failed. The text is the reason; that of a Python error begins with its class."""


@dataclass(eq=False)
class EngineEndedError(Exception):
    """The engine has ended, or does not start.

    A signal for a whole group of processes, as of `systemctl stop`, ends the engine as well: then
    this is no failure of the job. failure: the error to raise without such a signal.
    """

    failure: Exception


class Query(Protocol):
    """A running query."""

    def wait(self, timeout_s: float) -> bool:
        """Return whether the query has ended within `timeout_s`.

        Raises `QueryFailedError` and `EngineEndedError`.
        """

    def stop(self) -> None:
        """Stop the query, and return when it has stopped."""


class Engine(Protocol):
    """Runs the queries of one archive job, one after the other.

    `tasks` and `start` raise `EngineEndedError`.
    """

    @property
    def tasks(self) -> int:
        """How many tasks of a query run at once."""

    def start(self, job: ArchiveJob, every_s: float | None) -> Query:
        """Start a query at the end of the job's table.

        every_s: seconds between two batches; `None` for a query that ends when it has archived all
        records that the topic has now.
        """

    def close(self) -> None:
        """End what `start` has opened."""


_LEFTOVER_AGE_S = 86_400.0
_JAVA_GONE = (Py4JError, ConnectionError)
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


@dataclass
class SparkEngine:
    """Runs the queries of one archive job in a Spark session, which the first use opens.

    The query always begins where the table ends, so its checkpoint holds nothing to keep. Every
    start gets a new checkpoint folder, because a killed query may still write to the previous one.
    """

    open_session: Callable[[], SparkSession]
    checkpoints: Path

    def __post_init__(self) -> None:
        _remove_leftovers(self.checkpoints)

    @cached_property
    def _session(self) -> SparkSession:
        """The session, opened on first use: errors of table and log come before Java starts."""
        with _errors_of_java():
            session = self.open_session()
            session.dataSource.register(ArchiveSource)
            # Java looks a source up in the active session of the calling thread, and this call
            # sets it: without it a query that a second thread starts does not find the source.
            session.createDataFrame([], "nothing int")
            return session

    @property
    def tasks(self) -> int:
        """How many tasks the cluster runs at once."""
        session = self._session
        with _errors_of_java():
            try:
                return int(session.sparkContext.defaultParallelism)
            except PySparkException:  # Spark Connect has no context
                return int(session.conf.get("spark.default.parallelism", "2") or 2)

    def start(self, job: ArchiveJob, every_s: float | None) -> SparkQuery:
        """Start the streaming query of a job, as `Engine.start` describes."""
        checkpoint = self.checkpoints / uuid.uuid4().hex
        option = job.to_json()
        session = self._session
        with _errors_of_java():
            ranges = session.readStream.format(FORMAT).option("job", option).load()
            writer = ranges.writeStream.format(FORMAT).option("job", option)
            writer = writer.option("checkpointLocation", str(checkpoint))
            writer = writer.queryName(f"archive {job.topic} {checkpoint.name}")
            if every_s is None:
                writer = writer.trigger(availableNow=True)
            else:
                writer = writer.trigger(processingTime=f"{every_s} seconds")
            return SparkQuery(writer.start(), checkpoint)

    def close(self) -> None:
        """Stop the session if it was opened. Errors of a JVM that is gone are ignored."""
        if "_session" in self.__dict__:
            with suppress(*_JAVA_GONE):
                self._session.stop()


@dataclass
class SparkQuery:
    """A running query, and the folder of its checkpoint."""

    query: StreamingQuery
    checkpoint: Path

    def wait(self, timeout_s: float) -> bool:
        """Return whether the query has ended within `timeout_s`.

        Raises `QueryFailedError` and `EngineEndedError`.
        """
        with _errors_of_java():
            try:
                return bool(self.query.awaitTermination(timeout_s))
            except StreamingQueryException as error:
                raise QueryFailedError(reason_of(error)) from error

    def stop(self) -> None:
        """Stop the query and remove its checkpoint. Errors of a JVM that is gone are ignored."""
        with suppress(*_JAVA_GONE):
            self.query.stop()
        shutil.rmtree(self.checkpoint, ignore_errors=True)


@contextmanager
def _errors_of_java() -> Iterator[None]:
    """Raise errors of a Java process that has ended, or does not start, as `EngineEndedError`."""
    try:
        yield
    except _JAVA_GONE as error:
        failure = SyncError("Spark's Java process ended unexpectedly")
        raise EngineEndedError(failure) from error
    except PySparkException as error:
        raise EngineEndedError(error) from error


def _remove_leftovers(checkpoints: Path) -> None:
    """Remove checkpoints older than a day: killed runs left them, and no running job uses them."""
    for leftover in checkpoints.glob("*"):
        with suppress(FileNotFoundError):  # another run removed it when it ended
            if time.time() - leftover.stat().st_mtime > _LEFTOVER_AGE_S:
                shutil.rmtree(leftover, ignore_errors=True)
