"""`sync_topic`: archives one topic, once or until it is stopped.

Before, it checks that workers on other hosts can reach the tables' folder and the broker.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lakelog.client.view import is_loopback, parse_bootstrap
from lakelog.spark.archive.engine import SparkEngine
from lakelog.spark.archive.run import ArchiveRun
from lakelog.spark.archive.upkeep import FAILED, Refreshes
from lakelog.spark.session import has_local_workers, local_session, require_java
from lakelog.tables.archive.commit import SyncProgress, state_of
from lakelog.tables.archive.failures import Availability, SyncError
from lakelog.tables.archive.progress import ArchiveJob
from lakelog.tables.archive.publication import Publication, open_job
from lakelog.tables.archive.reconcile import ProgressSource, Reconciler
from lakelog.tables.archive.refusals import OnBadRecord
from lakelog.tables.iceberg.warehouse import NAMESPACE, Warehouse, is_remote, open_warehouse
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.upkeep.audit import adopt_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check_reachable(
    master: str, warehouse: Warehouse, bootstrap: str, *, is_shared: bool
) -> list[str]:
    """Return warnings about addresses that workers may not reach.

    is_shared: whether all workers can reach the warehouse's folder. Raises `ValueError` if a worker
    would write its files into a folder of its own host, and `AddressError` for a malformed
    `bootstrap`.
    """
    if has_local_workers(master):
        return []
    if not is_remote(warehouse.location) and not is_shared:
        raise ValueError(
            f"workers of {master} may be on other hosts, but the warehouse {warehouse.location} "
            "is a local folder: use an object store, or pass --shared-warehouse if all hosts have "
            "this folder mounted"
        )
    loopback = [host for host, _ in parse_bootstrap(bootstrap) if is_loopback(host)]
    return [
        f"workers of {master} may be on other hosts, which cannot reach a broker at {host}"
        for host in loopback
    ]


__all__ = ["NAMESPACE", "SyncError", "SyncProgress", "SyncResult", "sync_topic"]

_FILE_BYTES = 128 << 20

Notice = Callable[[str], None]
"""A function that is called with each line for the user."""


@dataclass(frozen=True, slots=True)
class SyncResult:
    """The result of a run, and the place of the table.

    rows: the rows that this run added. rows_moved: the rows of lost records that it removed.
    rows_total: the rows in the table. ends: the first offset of each partition that is not
    archived.
    """

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
    errors: OnBadRecord | None = None,
    adopt: ProgressSource | None = None,
    batch_bytes: int = 0,
    file_bytes: int = _FILE_BYTES,
    timeout_s: float = 30.0,
    master: str = "local[2]",
    is_warehouse_shared: bool = False,
    is_supervised: bool = False,
    spark: SparkSession | None = None,
    progress: Callable[[SyncProgress], None] | None = None,
    notice: Notice | None = None,
    stop: threading.Event | None = None,
) -> SyncResult:
    """Archive `topic` into the Iceberg table `lakelog.<table>` of a warehouse.

    Without `follow` the function returns when it has archived all records that the topic had at the
    start. With `follow` it commits every `every_s` seconds until `stop` is set. If the broker is
    unreachable, the job waits: up to `timeout_s`, or with `follow` without a limit.

    Args:
        warehouse: a folder, or a URI of an object store or HDFS.
        table: the name of the table; by default that of the topic.
        catalog_folder: the local folder of the catalog and of Spark's log. Required if the
            warehouse is remote; by default the warehouse itself.
        checkpoint: the folder for Spark's checkpoints; by default beside the catalog.
        skip_lost: continue if records were lost before they were archived, and move rows out of
            the table if the log lost their records later. Without it such losses are errors.
        null_timestamps: archive a timestamp outside the years 1 to 9999 as null, with its number
            in the column `rawTimestamp`. Without it such a timestamp is an error.
        errors: how to treat records that cannot be rows of the table; by default as the
            topic's key `table.errors` says, and without one STOP.
        adopt: which progress to use if the table's property and its current snapshot disagree, or
            if another program has filled the table. Without it either is an error.
        batch_bytes: about how many bytes of the log one commit archives; by default `file_bytes`
            for each task that the cluster runs at once.
        file_bytes: about how many bytes of the log one file gets.
        master: the Spark master for the session that the function opens.
        is_warehouse_shared: workers on other hosts can reach the warehouse's folder.
        is_supervised: the caller refreshes the table of newest records. Otherwise the function
            does, if the topic has one: at its end, with `follow` again and again.
        spark: an existing session, which stays open.
        progress: is called after each commit.
        notice: is called with a line for each event that the user should know.

    Raises `OptionError` and its subclasses, `ValueError` for an unusable warehouse or table,
    `AddressError`, `JavaMissingError`, `KafkaError` if the broker does not answer, and `SyncError`.
    """
    require_java()
    notify = notice or _ignore
    opened = open_warehouse(warehouse, catalog_folder)
    where = spark.conf.get("spark.master") if spark else master
    for warning in check_reachable(where, opened, bootstrap, is_shared=is_warehouse_shared):
        notify(warning)
    job = open_job(
        bootstrap,
        topic,
        opened,
        table or topic,
        batch_bytes=batch_bytes,
        file_bytes=file_bytes,
        skip_lost=skip_lost,
        null_timestamps=null_timestamps,
        errors=errors,
    )
    reconciler = _reconciler(job, adopt, notify)
    before = state_of(job)
    publication = Publication(bootstrap, topic, job.identifier[1], opened, notify)
    publication.claim()
    run = ArchiveRun(
        SparkEngine(
            _opener(spark, topic, opened, master),
            Path(checkpoint or opened.folder / "checkpoints" / job.topic_id),
        ),
        every_s=every_s if follow else None,
        reconciler=reconciler,
        availability=Availability(bootstrap, topic, None if follow else timeout_s, notify),
        publication=publication,
        progress=progress or _ignore,
        stop=stop or threading.Event(),
    )
    _archive(run, notify, is_supervised=is_supervised, ends_engine=spark is None)
    return _result(job, before, run.rows_moved)


def _archive(run: ArchiveRun, notify: Notice, *, is_supervised: bool, ends_engine: bool) -> None:
    """Run the job, and refresh the table of newest records beside it or at its end."""
    bootstrap, topic = run.publication.bootstrap, run.publication.topic
    follows = run.every_s is not None
    # Those beside a job end with it, also when it fails; the last one ends when the caller says so.
    refreshes = Refreshes(bootstrap, notify, threading.Event() if follows else run.stop)
    try:
        with refreshes.beside(lambda: [topic]) if follows and not is_supervised else nullcontext():
            run.watch()
    finally:
        if ends_engine:
            run.engine.close()
    if not follows and not run.stop.is_set():
        _refresh(refreshes, topic)


def _refresh(refreshes: Refreshes, topic: str) -> None:
    """Refresh the topic's table of newest records, if it has one. Raises `SyncError`."""
    try:
        refreshes.refresh(topic)
    except FAILED as error:
        raise SyncError(
            f"{topic!r} is archived, but its newest records are not refreshed: {error}"
        ) from error


def _reconciler(job: ArchiveJob, adopt: ProgressSource | None, notify: Notice) -> Reconciler:
    """Return the reconciler of a job, after adopting rows of another program if that is wanted."""
    if adopt is ProgressSource.ROWS:
        with TopicClient(job.bootstrap, client_id="lakelog-archive") as client:
            adopt_rows(job, client, notify)
        adopt = None
    return Reconciler(job, adopt, notify)


def _opener(
    spark: SparkSession | None, topic: str, warehouse: Warehouse, master: str
) -> Callable[[], SparkSession]:
    """Return a function that returns the caller's session, or opens one."""
    log = warehouse.folder / "spark.log"
    name = f"lakelog archive of {topic}"
    return lambda: spark or local_session(name, log=log, master=master)


def _result(job: ArchiveJob, before: SyncProgress, rows_moved: int) -> SyncResult:
    after = state_of(job)
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


def _ignore(_: object) -> None:
    """The callback if the caller passed none."""
