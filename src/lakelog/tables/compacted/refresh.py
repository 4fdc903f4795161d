"""Refreshes the table of newest records from the archive's table.

A refresh consists of rounds. A round reads archived rows after the table's progress, writes a new
file for each bucket whose keys have changed, and commits: the new files, the removal of the old
ones, and the progress, in one transaction. It requires the progress with which the round began: of
two refreshes at the same time one commits. A killed one leaves only files without a reference,
which `upkeep/cleanup.py` removes by age.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyiceberg.table import FileScanTask, Table

from lakelog.tables.compacted.backlog import BucketMerge, Spill, Taken, backlog, take
from lakelog.tables.compacted.table import (
    CompactedProgress,
    CompactedTableError,
    CompactedTableLocation,
    agreed,
    align,
    bucket_file,
    buckets_of,
    open_compacted,
    pinned,
    property_name,
)
from lakelog.tables.hybrid.archives import TopicArchive, reload
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.commits import (
    Policy,
    exchange,
    expire_snapshots,
    note_replaced,
    removing_new_files,
)
from lakelog.tables.iceberg.stored_files import remove_unreferenced
from lakelog.tables.typed.columns import own_schema

KEPT = Policy(3, 3_600_000)
"""Each refresh rewrites files, so fewer snapshots are kept than of an archive."""
GRACE_S = 3_600.0
"""The time for which replaced files stay."""
_BUCKET_BYTES = 256 << 20
"""New rows of one bucket that are in memory together."""
_ATTEMPTS_MAX = 8


@dataclass(frozen=True, slots=True)
class Refreshed:
    """The result of a refresh: archived rows read, buckets and commits written, and the ends."""

    rows: int = 0
    buckets: int = 0
    commits: int = 0
    ends: Mapping[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class Refresh:
    """A refresh of one table.

    notice: called with lines for the user. stop: ends the refresh after the present bucket; only
    complete rounds are committed. bucket_bytes: see `_BUCKET_BYTES`.
    """

    compacted: CompactedTableLocation
    notice: Callable[[str], None]
    stop: threading.Event = field(default_factory=threading.Event)
    bucket_bytes: int = _BUCKET_BYTES

    def run(self, archive: TopicArchive, *, rebuild: bool = False) -> Refreshed:
        """Bring the table to the end of this version of the archive.

        Rows that are archived later are left for the next refresh. Otherwise a refresh would not
        end beside a fast archive.

        rebuild: compute all rows again, regardless of the present rows. Raises
        `CompactedTableError`, `ArchiveUnreadableError`, `UnknownOutcomeError`,
        `TableReplacedError`, `ValueError`, `OSError` and the errors of the catalog.
        """
        total, lost, ends = Refreshed(), 0, archive.progress.ends
        while not self.stop.is_set():
            archive = reload(archive.topic, archive.topic_id, archive.address)
            done = self._round(archive, ends, rebuild=rebuild)
            if done is None:
                lost += 1
                if lost >= _ATTEMPTS_MAX:
                    raise CompactedTableError(
                        f"other programs keep changing the table {self._name}: end the other "
                        "refreshes"
                    )
                continue
            if not done.commits:
                return replace(total, ends=done.ends)
            rebuild = False
            total = Refreshed(
                total.rows + done.rows,
                total.buckets + done.buckets,
                total.commits + done.commits,
                done.ends,
            )
        return total

    @property
    def _name(self) -> str:
        return ".".join(self.compacted.address.identifier)

    def _round(
        self, archive: TopicArchive, ends: Mapping[int, int], *, rebuild: bool
    ) -> Refreshed | None:
        """Commit one round; return `None` if another program changed the table meanwhile."""
        table = open_compacted(self.compacted, archive)
        address = pinned(self.compacted, table)
        before = table.properties[property_name(archive.topic_id)]
        progress = self._progress(table, archive, rebuild=rebuild)
        is_new = rebuild or progress.rewinds != archive.progress.rewinds
        if is_new:
            progress = CompactedProgress(_uuid(archive.table), archive.progress.rewinds)
        ranges = backlog(archive, progress.ends, ends)
        if not ranges and not is_new:
            return Refreshed(ends=progress.ends)
        table = align(address, archive.table)
        buckets = buckets_of(table)
        assert buckets is not None, "`open_latest` has checked it"
        with Spill(buckets, own_schema(archive.table)) as spill:
            taken = take(archive, ranges, spill, self.bucket_bytes)
            present = list(table.scan().plan_files())
            round_ = _Round(
                address,
                table,
                archive.topic_id,
                before,
                _advanced(progress, taken).to_text(),
                present if is_new else [],
                {} if is_new else _by_bucket(table, present),
            )
            try:
                is_done = round_.commit(spill, self.stop)
            except FileNotFoundError as error:
                _check_replaced(address, table, archive.topic, error)
                is_done = False
        if not is_done:
            return None
        expire_snapshots(address)
        return Refreshed(taken.rows, round_.written, 1, taken.ends)

    def _progress(self, table: Table, archive: TopicArchive, *, rebuild: bool) -> CompactedProgress:
        """Return the agreed progress. Raises `CompactedTableError`."""
        uuid = _uuid(archive.table)
        if rebuild:
            return CompactedProgress(uuid, archive.progress.rewinds)
        progress = agreed(table, archive.topic_id)
        if progress.archive != uuid:
            raise CompactedTableError(
                f"the table {self._name} has rows of an archive that was dropped (its UUID was "
                f"{progress.archive}, now it is {uuid}). They may be the last copy: lakelog table "
                f"refresh {archive.topic} --rebuild replaces them"
            )
        if progress.rewinds != archive.progress.rewinds:
            self.notice(
                f"{archive.topic}: rows left the archive since the last refresh, so {self._name} "
                "is computed again"
            )
        return progress


@dataclass(slots=True)
class _Round:
    """One commit.

    before, after: texts of the progress. old: files that are replaced in any case. present: the
    files of each bucket otherwise. written: how many buckets got other rows.
    """

    address: TableAddress
    table: Table
    topic_id: str
    before: str
    after: str
    old: list[FileScanTask]
    present: Mapping[int, list[FileScanTask]]
    written: int = 0

    def commit(self, spill: Spill, stop: threading.Event) -> bool:
        """Write and commit the files of all buckets; return false if nothing was committed."""
        made: dict[str, int] = {}
        with removing_new_files(self.address, made):
            is_done = self._write(spill, stop, made) and self._exchange(made)
        if not is_done:
            remove_unreferenced(self.address.load(), made)
        return is_done

    def _write(self, spill: Spill, stop: threading.Event, made: dict[str, int]) -> bool:
        """Write the files; return false if `stop` was set. made: gets their paths and buckets."""
        schema = own_schema(self.table)
        for bucket in sorted(spill.sizes):
            if stop.is_set():
                return False
            tasks = self.present.get(bucket, [])
            paths = [task.file.file_path for task in tasks]
            merge = BucketMerge(paths, schema, self.address.catalog)
            winners: pa.Table = merge.winners(spill.read(bucket))
            if not winners.num_rows:
                continue
            path = f"{self.table.location()}/data/latest-{uuid.uuid4().hex}.parquet"
            made |= dict.fromkeys(merge.write(winners, path), bucket)
            self.old += tasks
            self.written += 1
        return True

    def _exchange(self, made: Mapping[str, int]) -> bool:
        name = property_name(self.topic_id)
        if self.old:
            paths = [task.file.file_path for task in self.old]
            note_replaced(self.table, self.address.catalog, paths)
        return exchange(
            self.address,
            self.old,
            lambda table: [bucket_file(table, path, bucket) for path, bucket in made.items()],
            lambda table: {name: self.after} if table.properties.get(name) == self.before else None,
        )


def _check_replaced(
    address: TableAddress, table: Table, topic: str, missing: FileNotFoundError
) -> None:
    """Raise `CompactedTableError` unless another refresh replaced the files that `table` has."""
    if address.load().metadata.current_snapshot_id == table.metadata.current_snapshot_id:
        raise CompactedTableError(
            f"a data file of the table {'.'.join(table.name())} is missing ({missing}): compute "
            f"the rows again with lakelog table refresh {topic} --rebuild"
        ) from missing


def _by_bucket(table: Table, tasks: Iterable[FileScanTask]) -> dict[int, list[FileScanTask]]:
    """Return the files of each bucket. Raises `CompactedTableError` for files of other programs."""
    bucket_tasks: dict[int, list[FileScanTask]] = {}
    for task in tasks:
        if task.delete_files or task.file.spec_id != table.spec().spec_id:
            raise CompactedTableError(
                f"another program has deleted rows of the table {'.'.join(table.name())}, or "
                "changed its partitions: rebuild it with lakelog table refresh TOPIC --rebuild"
            )
        bucket_tasks.setdefault(task.file.partition[0], []).append(task)
    return bucket_tasks


def _advanced(progress: CompactedProgress, taken: Taken) -> CompactedProgress:
    null_keys = dict(progress.null_keys)
    for partition, count in taken.null_keys.items():
        null_keys[partition] = null_keys.get(partition, 0) + count
    ends = {**progress.ends, **taken.ends}
    return replace(progress, ends=ends, null_keys=null_keys, refresh=uuid.uuid4().hex)


def _uuid(table: Table) -> str:
    return str(table.metadata.table_uuid)
