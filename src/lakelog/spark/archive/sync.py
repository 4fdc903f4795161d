"""`sync_topic`: runs the archive job of one topic, once or until told to stop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lakelog.spark.archive.run import Run
from lakelog.spark.archive.workers import check_reachable
from lakelog.spark.session import local_session, require_java
from lakelog.tables.archive.availability import Availability
from lakelog.tables.archive.failures import SyncError
from lakelog.tables.archive.job import ArchiveJob
from lakelog.tables.archive.opening import NAMESPACE, open_job
from lakelog.tables.archive.reconcile import ProgressSource, Reconciler
from lakelog.tables.archive.state import SyncProgress, state_of
from lakelog.tables.iceberg.warehouse import open_warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["NAMESPACE", "SyncError", "SyncProgress", "SyncResult", "sync_topic"]

_BATCH_BYTES = 256 << 20

Notice = Callable[[str], None]
"""Is called with a line for the user."""


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
    notify = notice or _ignore
    where = spark.conf.get("spark.master") if spark else master
    for warning in check_reachable(where, place, bootstrap, is_shared=is_warehouse_shared):
        notify(warning)
    job = open_job(
        bootstrap,
        topic,
        place,
        table or topic,
        batch_bytes=batch_bytes,
        skip_lost=skip_lost,
        null_timestamps=null_timestamps,
    )
    before = state_of(job)
    checkpoints = Path(checkpoint or place.folder / "checkpoints" / job.topic_id)
    log = place.folder / "spark.log"
    name = f"lakelog archive of {topic}"
    run = Run(
        lambda: spark or local_session(name, log=log, master=master),
        checkpoints,
        every_s=every_s if follow else None,
        reconciler=Reconciler(job, progress_from, notify),
        availability=Availability(bootstrap, topic, None if follow else timeout_s, notify),
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
    """The callback of a caller that passed none."""
