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
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyiceberg.exceptions import CommitFailedException
from pyspark.errors import StreamingQueryException
from sqlalchemy.exc import SQLAlchemyError

from lakelog.base.errors import KafkaError
from lakelog.base.events import event
from lakelog.spark.archive.address import TableAddress, TableReplacedError
from lakelog.spark.archive.availability import Availability
from lakelog.spark.archive.history import ProgressMismatchError
from lakelog.spark.archive.progress import (
    Extent,
    ProgressConflictError,
    ProgressFormatError,
    archived_topic_ids,
    read_progress,
)
from lakelog.spark.archive.reconcile import ProgressSource, Reconciler
from lakelog.spark.archive.stream import FORMAT, ArchiveJob, ArchiveSource
from lakelog.spark.archive.table import admit_null_timestamps, ensure_table
from lakelog.spark.archive.warehouse import Warehouse, open_warehouse
from lakelog.spark.archive.workers import check_reachable
from lakelog.spark.broker import Broker
from lakelog.spark.errors import (
    BadRecordError,
    DataLossError,
    TopicGoneError,
    TopicMissingError,
)
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
_FINAL = (
    DataLossError,
    TopicGoneError,
    BadRecordError,
    TopicMissingError,
    ProgressMismatchError,
    ProgressFormatError,
    TableReplacedError,
)
"""What no other try changes, raised here or, by name, in one of Spark's processes. Other kinds of
`DataLossError` from there are looked at from here, where they may be settled."""
_PASSING = (
    KafkaError,
    ProgressConflictError,
    CommitFailedException,
    SQLAlchemyError,
    OSError,
)
_LOST_TAIL = ("LogDivergedError: ", "LogReplacedError: ")
_CONNECTION = ("UnreachableError: ", "ConnectionLostError: ", "ClientError: ")
NAMESPACE = "lakelog"


class SyncError(Exception):
    """The archive job cannot go on. The text says why."""


Notice = Callable[[str], None]
"""Is called with a line for the user."""


@dataclass(frozen=True, slots=True)
class SyncProgress:
    """The table after a commit. `ends` maps partitions to the first offset not archived."""

    rows: int
    ends: Mapping[int, int]
    snapshot_id: int | None


@dataclass(frozen=True, slots=True)
class SyncResult:
    """What a run did and where the table is. `rows` counts the rows this run added, `rows_moved`
    those of lost records that it took out of the table."""

    metadata_path: str
    table: tuple[str, str]
    catalog: Mapping[str, str]
    rows: int
    rows_moved: int
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
    null_timestamps: bool = False,
    progress_from: ProgressSource | None = None,
    batch_bytes: int = _BATCH_BYTES,
    timeout_s: float = 30.0,
    master: str = "local[2]",
    is_warehouse_shared: bool = False,
    spark: SparkSession | None = None,
    progress: Callable[[SyncProgress], None] | None = None,
    notice: Notice | None = None,
    stop: threading.Event | None = None,
) -> SyncResult:
    """Archives `topic` into the Iceberg table `lakelog.<table or topic>` of a warehouse.

    Without `follow` it ends when what was in the log at the start is archived; with it, it
    commits every `every_s` seconds until `stop` is set. `batch_bytes` is about how much of the
    log one commit takes. `skip_lost` accepts that records were lost before they were archived, and
    moves rows out of the table whose records the log lost afterwards. `null_timestamps` archives a
    timestamp that is no date as null, with its number in the column `rawTimestamp`.
    `progress_from` settles a disagreement of the table's property and its current snapshot.
    `warehouse` is a folder or a URI; `is_warehouse_shared` says that workers on other hosts reach
    the folder. `catalog_folder` has the catalog and Spark's log; it is needed when the warehouse is
    not on this machine, and the warehouse itself otherwise. `checkpoint` is a folder for Spark's
    checkpoints, by default beside the catalog. When the broker goes away, the job waits: with
    `follow` as long as it takes, otherwise for `timeout_s`. `notice` is called with a line for
    each such event.
    Raises `OptionError` and its kinds, `ValueError` for a warehouse that cannot be written to,
    `JavaMissingError`, `KafkaError` when the broker does not answer, `SyncError`.
    """
    require_java()
    place = open_warehouse(warehouse, catalog_folder)
    tell = notice or _ignore
    where = spark.conf.get("spark.master") if spark else master
    for warning in check_reachable(where, place, bootstrap, is_shared=is_warehouse_shared):
        tell(warning)
    job = _plan(bootstrap, topic, place, table or topic)
    raw = admit_null_timestamps(job.address) if null_timestamps else 0
    job = replace(job, batch_bytes=batch_bytes, skip_lost=skip_lost, raw_timestamp_id=raw)
    before = _state(job)
    checkpoints = Path(checkpoint or place.folder / "checkpoints" / job.topic_id)
    log = place.folder / "spark.log"
    name = f"lakelog archive of {topic}"
    run = _Run(
        lambda: spark or local_session(name, log=log, master=master),
        checkpoints,
        every_s=every_s if follow else None,
        reconciler=Reconciler(job, progress_from, tell),
        availability=Availability(bootstrap, topic, None if follow else timeout_s, tell),
        progress=progress or _ignore,
        stop=stop or threading.Event(),
    )
    try:
        run.watch()
    finally:
        if spark is None:
            run.close()
    return _result(job, before, run.rows_moved)


def _result(job: ArchiveJob, before: SyncProgress, rows_moved: int) -> SyncResult:
    after = _state(job)
    return SyncResult(
        metadata_path=str(job.address.load().metadata_location),
        table=job.identifier,
        catalog=job.catalog,
        rows=after.rows - before.rows + rows_moved,
        rows_moved=rows_moved,
        rows_total=after.rows,
        ends=after.ends,
        snapshot_id=after.snapshot_id,
    )


def _plan(bootstrap: str, topic: str, place: Warehouse, table: str) -> ArchiveJob:
    """The job without its options."""
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
        batch_bytes=_BATCH_BYTES,
        tasks=_TASKS,
        skip_lost=False,
        raw_timestamp_id=0,
        uuid=str(loaded.metadata.table_uuid),
        extents={},
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
    """Raises `SyncError` when the table is another one, or unreadable."""
    try:
        table = job.address.load()
        ends = read_progress(table.properties, job.topic_id).ends
    except (TableReplacedError, ProgressFormatError) as error:
        raise SyncError(str(error)) from error
    snapshot = table.current_snapshot()
    rows = 0 if snapshot is None or snapshot.summary is None else snapshot.summary["total-records"]
    return SyncProgress(int(rows or 0), ends, snapshot and snapshot.snapshot_id)


def _ignore(_: object) -> None:
    """What is called with news when nobody asked for them."""


@dataclass
class _Run:
    """A query, started again when it fails and the failure may pass.

    Every start has a checkpoint of its own: the query begins where the table ends anyway, and a
    folder that a dying predecessor still writes to would only be in the way.
    """

    open_session: Callable[[], SparkSession]
    checkpoints: Path
    _: KW_ONLY
    every_s: float | None
    reconciler: Reconciler
    availability: Availability
    progress: Callable[[SyncProgress], None]
    stop: threading.Event
    rows_moved: int = 0
    _failures: int = 0
    _snapshot_id: int | None = None

    def __post_init__(self) -> None:
        self._job = self.reconciler.job
        _remove_leftovers(self.checkpoints)

    @cached_property
    def _session(self) -> SparkSession:
        """Opened late: what is wrong with table and log is said before Java has started."""
        session = self.open_session()
        session.dataSource.register(ArchiveSource)
        return session

    def close(self) -> None:
        if "_session" in self.__dict__:
            with suppress(*_JAVA_GONE):
                self._session.stop()

    def watch(self) -> None:
        """Returns when the work is done or `stop` is set.

        Raises `SyncError`, and `KafkaError` when the broker stays away.
        """
        try:
            while not self.stop.is_set():
                if self._attempt():
                    return
        except _FINAL as error:
            raise SyncError(str(error)) from error

    def _attempt(self) -> bool:
        """Returns whether the work is done; not so after a failure that may pass."""
        try:
            self._reconcile()
            return self._query()
        except StreamingQueryException as error:
            self._failed(_reason(str(error)))
        except _FINAL:
            raise
        except _PASSING as error:
            self._failed(f"{type(error).__name__}: {error}")
        return False

    def _reconcile(self) -> None:
        """A choice about one rollback is none about the next."""
        with Broker(self._job.bootstrap, client_id="lakelog-archive") as broker:
            self.rows_moved += self.reconciler.run(broker)
        self.reconciler = replace(self.reconciler, progress_from=None)
        self._snapshot_id = _state(self._job).snapshot_id

    def _query(self) -> bool:
        """Returns whether the work is done."""
        checkpoint = self.checkpoints / uuid.uuid4().hex
        query = self._start(checkpoint)
        try:
            while not self.stop.is_set():
                ended = query.awaitTermination(_POLL_S)
                self._report()
                if ended:
                    return True
        except _JAVA_GONE as error:
            raise SyncError("Spark's Java process ended unexpectedly") from error
        finally:
            with suppress(*_JAVA_GONE):
                query.stop()
            shutil.rmtree(checkpoint, ignore_errors=True)
        return False

    def _start(self, checkpoint: Path) -> Any:
        properties = self._job.address.load().properties
        extents: dict[int, Extent] = dict(read_progress(properties, self._job.topic_id).extents)
        option = replace(self._job, extents=extents).to_option()
        ranges = self._session.readStream.format(FORMAT).option("job", option).load()
        writer = ranges.writeStream.format(FORMAT).option("job", option)
        writer = writer.option("checkpointLocation", str(checkpoint))
        writer = writer.queryName(f"archive {self._job.topic} {checkpoint.name}")
        if self.every_s is None:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{self.every_s} seconds").start()

    def _report(self) -> None:
        state = _state(self._job)
        if state.snapshot_id != self._snapshot_id:
            self._snapshot_id = state.snapshot_id
            self._failures = 0
            self.progress(state)

    def _failed(self, reason: str) -> None:
        """Counts failures in a row without progress, and waits for a broker that is away.

        Raises `SyncError` when it is enough.
        """
        self._report()
        final = next((each for each in _FINAL if reason.startswith(f"{each.__name__}: ")), None)
        if final is not None:
            raise SyncError(reason.removeprefix(f"{final.__name__}: "))
        if self.availability.wait(self.stop):
            return
        is_passing = reason.startswith(_CONNECTION) and self.every_s is not None
        self._failures += not is_passing
        if self._failures >= _FAILURES_MAX:
            raise SyncError(reason)
        _log.warning(
            "the archive job of %r is started again: %s",
            self._job.topic,
            reason,
            extra=event("archive_job_restarted", topic=self._job.topic),
        )
        if not reason.startswith(_LOST_TAIL):
            self.stop.wait(max(1, self._failures))


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
