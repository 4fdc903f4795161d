"""`sync_topic`: runs the archive job of one topic, once or until told to stop."""

from __future__ import annotations

import logging
import re
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import StreamingQueryException

from lakelog.base.events import event
from lakelog.spark.archive.address import TableAddress
from lakelog.spark.archive.progress import archived_topic_ids, read_progress
from lakelog.spark.archive.stream import FORMAT, ArchiveJob, ArchiveSource
from lakelog.spark.archive.table import ensure_table
from lakelog.spark.archive.warehouse import Warehouse, open_warehouse
from lakelog.spark.broker import Broker
from lakelog.spark.session import local_session, require_java

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyspark.sql import SparkSession

_log = logging.getLogger("lakelog.spark.archive")
_POLL_S = 0.5
_FAILURES_MAX = 3
_LEFTOVER_AGE_S = 86_400.0
_BATCH_BYTES = 256 << 20
_TASKS = 2
_JAVA_GONE = (Py4JError, ConnectionError)
_HOPELESS = ("DataLossError", "TopicMissingError")
NAMESPACE = "lakelog"


class SyncError(Exception):
    """The archive job cannot go on. The text says why."""


@dataclass(frozen=True, slots=True)
class SyncProgress:
    """The table after a commit. `ends` maps partitions to the first offset not archived."""

    rows: int
    ends: Mapping[int, int]
    snapshot_id: int | None


@dataclass(frozen=True, slots=True)
class SyncResult:
    """What a run did and where the table is. `rows` counts the rows this run added."""

    metadata_path: str
    table: tuple[str, str]
    catalog: Mapping[str, str]
    rows: int
    rows_total: int
    ends: Mapping[int, int]
    snapshot_id: int | None


def sync_topic(
    bootstrap: str,
    topic: str,
    warehouse: str,
    *,
    follow: bool = False,
    every_s: float = 60.0,
    table: str | None = None,
    catalog_folder: str | None = None,
    checkpoint: str | None = None,
    skip_lost: bool = False,
    batch_bytes: int = _BATCH_BYTES,
    master: str = "local[2]",
    spark: SparkSession | None = None,
    progress: Callable[[SyncProgress], None] | None = None,
    stop: threading.Event | None = None,
) -> SyncResult:
    """Archives `topic` into the Iceberg table `lakelog.<table or topic>` of a warehouse.

    Without `follow` it ends when what was in the log at the start is archived; with it, it
    commits every `every_s` seconds until `stop` is set. `batch_bytes` is about how much of the
    log one commit takes. `skip_lost` accepts that retention removed records before they were
    archived. `warehouse` is a folder or a URI. `catalog_folder` has the catalog and Spark's log;
    it is needed when the warehouse is not on this machine, and the warehouse itself otherwise.
    `checkpoint` is a folder for Spark's checkpoints, by default beside the catalog.
    Raises `OptionError` and its kinds, `ValueError` for a warehouse that cannot be written to,
    `JavaMissingError`, `SyncError`.
    """
    require_java()
    place = open_warehouse(warehouse, catalog_folder)
    job = _plan(bootstrap, topic, place, table or topic, batch_bytes, skip_lost)
    before = _state(job)
    checkpoints = Path(checkpoint or place.folder / "checkpoints" / job.topic_id)
    log = place.folder / "spark.log"
    session = spark or local_session(f"lakelog archive of {topic}", log=log, master=master)
    try:
        _Run(job, session, checkpoints, every_s if follow else None).watch(
            progress or _ignore, stop or threading.Event()
        )
    finally:
        if spark is None:
            with suppress(*_JAVA_GONE):
                session.stop()
    after = _state(job)
    return SyncResult(
        metadata_path=str(job.address.load().metadata_location),
        table=job.identifier,
        catalog=job.catalog,
        rows=after.rows - before.rows,
        rows_total=after.rows,
        ends=after.ends,
        snapshot_id=after.snapshot_id,
    )


def _plan(
    bootstrap: str, topic: str, place: Warehouse, table: str, batch_bytes: int, skip_lost: bool
) -> ArchiveJob:
    with Broker(bootstrap, client_id="lakelog-archive") as broker:
        meta = broker.describe([topic])[topic]
    catalog = place.catalog
    identifier = (NAMESPACE, table)
    loaded = _table(place, TableAddress(catalog, identifier))
    others = archived_topic_ids(loaded.properties) - {meta.topic_id}
    if others:
        raise SyncError(
            f"the table {NAMESPACE}.{table} holds another topic's records (topic id "
            f"{', '.join(sorted(others))}; {topic!r} is {meta.topic_id} now, perhaps because it "
            "was deleted and created again): archive into a table of another name"
        )
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
        ends={},
    )


def _table(place: Warehouse, address: TableAddress) -> Table:
    """Raises `ValueError` when the warehouse refuses, and when the table is in another one."""
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


def _state(job: ArchiveJob) -> SyncProgress:
    table = job.address.load()
    snapshot = table.current_snapshot()
    rows = 0 if snapshot is None or snapshot.summary is None else snapshot.summary["total-records"]
    ends = read_progress(table.properties, job.topic_id).ends
    return SyncProgress(int(rows or 0), ends, snapshot and snapshot.snapshot_id)


def _ignore(_: SyncProgress) -> None:
    """What is called after a commit when nobody asked to be."""


class _Run:
    """A query, started again when it fails and the failure may pass.

    Every start has a checkpoint of its own: the query begins where the table ends anyway, and a
    folder that a dying predecessor still writes to would only be in the way.
    """

    def __init__(
        self, job: ArchiveJob, session: SparkSession, checkpoints: Path, every_s: float | None
    ) -> None:
        self._job = job
        self._session = session
        self._checkpoints = checkpoints
        self._every_s = every_s
        self._failures = 0
        session.dataSource.register(ArchiveSource)
        _remove_leftovers(checkpoints)

    def watch(self, progress: Callable[[SyncProgress], None], stop: threading.Event) -> None:
        """Returns when the work is done or `stop` is set. Raises `SyncError`."""
        seen = _state(self._job)
        while not stop.is_set():
            checkpoint = self._checkpoints / uuid.uuid4().hex
            query = self._start(checkpoint, seen)
            try:
                while not stop.is_set():
                    ended = query.awaitTermination(_POLL_S)
                    seen = self._report(seen, progress)
                    if ended:
                        return
            except StreamingQueryException as error:
                seen = self._failed(error, seen)
                stop.wait(self._failures)
            except _JAVA_GONE as error:
                raise SyncError("Spark's Java process ended unexpectedly") from error
            finally:
                with suppress(*_JAVA_GONE):
                    query.stop()
                shutil.rmtree(checkpoint, ignore_errors=True)

    def _start(self, checkpoint: Path, state: SyncProgress) -> Any:
        option = replace(self._job, ends=dict(state.ends)).to_option()
        ranges = self._session.readStream.format(FORMAT).option("job", option).load()
        writer = ranges.writeStream.format(FORMAT).option("job", option)
        writer = writer.option("checkpointLocation", str(checkpoint))
        writer = writer.queryName(f"archive {self._job.topic} {checkpoint.name}")
        if self._every_s is None:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{self._every_s} seconds").start()

    def _report(self, seen: SyncProgress, progress: Callable[[SyncProgress], None]) -> SyncProgress:
        state = _state(self._job)
        if state.snapshot_id != seen.snapshot_id:
            self._failures = 0
            progress(state)
        return state

    def _failed(self, error: StreamingQueryException, seen: SyncProgress) -> SyncProgress:
        """Counts failures in a row without progress. Raises `SyncError` when it is enough."""
        state = _state(self._job)
        if state.snapshot_id != seen.snapshot_id:
            self._failures = 0
        self._failures += 1
        reason = _reason(str(error))
        if self._failures >= _FAILURES_MAX or reason.startswith(_HOPELESS):
            raise SyncError(reason) from None
        _log.warning(
            "the archive job of %r is started again: %s",
            self._job.topic,
            reason,
            extra=event("archive_job_restarted", topic=self._job.topic),
        )
        return state


def _reason(text: str) -> str:
    """The last line of the Python error in Spark's text, without the names of its modules."""
    found = re.findall(r"^(?:\w+\.)*(\w+(?:Error|Exception): .+)$", text, re.MULTILINE)
    return str(found[-1]) if found else text.strip().splitlines()[0]


def _remove_leftovers(checkpoints: Path) -> None:
    """Checkpoints of runs that were killed: a day old, so none that is still at work."""
    for leftover in checkpoints.glob("*"):
        with suppress(FileNotFoundError):  # of a run beside this one, which has just ended
            if time.time() - leftover.stat().st_mtime > _LEFTOVER_AGE_S:
                shutil.rmtree(leftover, ignore_errors=True)
