"""Brings table and log into agreement before a query starts.

They can differ in three ways. The table was rolled back: its property claims rows that its snapshot
does not have. The log lost archived records, and may hold other records at their offsets. The
table's progress lacks partitions of the topic. The first two stop the job unless an option selects
how to continue. Each difference is resolved by one commit, which fences other jobs like any commit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from pyiceberg.table import Table

from lakelog.client.offsets import EpochEnd
from lakelog.tables.archive.commit import Batch, commit_batch
from lakelog.tables.archive.history import (
    ProgressMismatchError,
    agreed_progress,
    record,
    recorded_progress,
)
from lakelog.tables.archive.lost_records import (
    check_pending_dead_letters,
    cut_lost_dead_letters,
    dead_letters_ahead,
    refused_before,
    remove_rows,
    tagged,
)
from lakelog.tables.archive.planner import first_extents, lost_before
from lakelog.tables.archive.progress import (
    UNKNOWN,
    ArchiveJob,
    Extent,
    Progress,
    ProgressConflictError,
    property_name,
    read_progress,
)
from lakelog.tables.archive.refusals import Span
from lakelog.tables.iceberg.table import load_for_commit, rows_in
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.topic.errors import DataLossError, LogDivergedError
from lakelog.tables.topic.offsets import Divergence, StreamOffset, find_divergences

_NO_QUERY = ""
_NO_BATCH = -1


class ProgressSource(Enum):
    """Which progress to use when the table and its progress disagree.

    SNAPSHOT, PROPERTY: one of the two that differ. ROWS: a table that another program has filled
    has no progress; its rows become the progress (`adopt_rows` of `upkeep/audit.py`).
    """

    SNAPSHOT = "snapshot"
    PROPERTY = "property"
    ROWS = "rows"


@dataclass(frozen=True, slots=True)
class Reconciler:
    """Resolves the differences, as far as the options of `job` allow it.

    adopt: the progress to use after a rollback; with `None` a rollback is an error. notice:
    called with each line for the user.
    """

    job: ArchiveJob
    adopt: ProgressSource | None
    notice: Callable[[str], None]

    def run(self, client: TopicClient) -> int:
        """Resolve all differences; return how many rows were moved out of the table.

        Raises `ProgressMismatchError`, `LogDivergedError`, `DataLossError`, `SyncError`,
        `KafkaError`, and the errors of the catalog.
        """
        job = self.job
        partitions = self._partitions(client)
        # First: the steps below rely on an agreed progress.
        self._resolve_rollback()
        table = load_for_commit(job.address)
        progress = agreed_progress(table, job.topic_id)
        if not progress.extents and rows_in(table):
            raise ProgressMismatchError(
                f"the table {'.'.join(job.identifier)} has {rows_in(table)} rows that this archive "
                "did not write: --adopt rows continues after them, or archive into a table of "
                "another name"
            )
        diverged = self._diverged(client, progress)
        self._partitions(client)  # do not move rows if another topic took the name meanwhile
        moved = self._replace_lost(table, progress, diverged) if diverged else 0
        self._resolve_dead_letters(client)
        self._check_unarchived(client)
        self._complete_progress(client, partitions)
        return moved

    def _partitions(self, client: TopicClient) -> tuple[int, ...]:
        """Return the topic's partitions. Raises `DataLossError` if the topic was replaced."""
        meta = client.describe([self.job.topic])[self.job.topic]
        if meta.topic_id != self.job.topic_id:
            raise DataLossError(f"topic {self.job.topic!r} was deleted and created again")
        return meta.partitions

    def _resolve_rollback(self) -> None:
        job = self.job
        table = load_for_commit(job.address)
        try:
            agreed_progress(table, job.topic_id)
            return
        except ProgressMismatchError:
            if self.adopt is None:
                raise
        claimed = read_progress(table.properties, job.topic_id)
        progress: Progress | None = claimed
        if self.adopt is ProgressSource.SNAPSHOT:
            progress = recorded_progress(table, job.topic_id).progress
        if progress is None:
            raise ProgressMismatchError(
                f"no kept snapshot of the table {'.'.join(job.identifier)} records the progress: "
                "make a newer snapshot the current one, pass --adopt property, "
                "or archive into a table of another name"
            )
        progress = replace(progress, rewinds=1 + max(progress.rewinds, claimed.rewinds))
        # This commit makes property and snapshot agree, and fences jobs that read the old progress.
        with table.transaction() as transaction:
            record(transaction, job.topic_id, progress)
        self.notice(f"{job.topic}: continues with the progress of the {self.adopt.value}")

    def _diverged(self, client: TopicClient, progress: Progress) -> list[Divergence]:
        """Return the partitions whose log no longer holds the archived records.

        If the leader epoch is unknown, as in a table of version 1, only the end of the log is
        compared.
        """
        topic = self.job.topic
        # The epochs detect a log that was cut and grew again, which its end alone does not show.
        ids = {topic: self.job.topic_id}
        point = StreamOffset({topic: progress.ends}, ids, {topic: progress.leader_epochs})
        diverged = find_divergences(client, point)
        unknown = [(topic, p) for p in progress.ends if p not in progress.leader_epochs]
        for (_, partition), end in client.log_end(unknown).items() if unknown else ():
            archived = progress.ends[partition]
            if end < archived:
                diverged.append(Divergence(topic, partition, archived, UNKNOWN, EpochEnd(-1, end)))
        return diverged

    def _replace_lost(self, table: Table, progress: Progress, diverged: list[Divergence]) -> int:
        """Remove the rows of lost records and set the progress back to where the log was cut.

        Return how many rows were removed. A tag keeps the snapshot that has these rows: the table
        may be their last copy.
        """
        text = "; ".join(_described(cut) for cut in diverged)
        name = ".".join(self.job.identifier)
        rows = [(cut.partition, cut.restart, cut.offset) for cut in diverged]
        cut = [Span(partition, at, end) for partition, at, end in rows if at is not None]
        phantoms = ", ".join(f"partition {p} offsets [{at}, {end})" for p, at, end in cut)
        if len(cut) < len(rows):
            raise LogDivergedError(f"{text}. Archive it into a table of another name")
        if not self.job.skip_lost:
            raise LogDivergedError(
                f"{text}. The table {name} has rows of records that the topic no longer holds: "
                f"{phantoms}. --skip-lost moves these rows out of the table (a tag keeps them) and "
                "archives the records that the topic now holds at their offsets"
            )
        tag = tagged(table)
        epochs = {cut.partition: cut.epoch_end.epoch for cut in diverged}
        back = {p: Extent(min(progress.extents[p].start, at), at, epochs[p]) for p, at, _ in cut}
        after = Progress(
            {**progress.extents, **back},
            _NO_QUERY,
            _NO_BATCH,
            refused_before(self.job, progress, back),
            progress.rewinds + 1,
        )
        moved = self._remove(table, cut, progress, after)
        self.notice(
            f"{self.job.topic}: {text}. {moved} rows of {name} ({phantoms}) are no longer in the "
            f"table; the tag {tag} keeps the snapshot that has them"
        )
        return moved

    def _remove(self, table: Table, cut: Sequence[Span], before: Progress, after: Progress) -> int:
        """Remove rows and set the progress in one commit; return the number of rows.

        Raises `ProgressConflictError` if another job has committed since `before` was read.
        """
        topic_id = self.job.topic_id

        def entry(table: Table) -> Mapping[str, str] | None:
            if agreed_progress(table, topic_id) != before:
                return None
            return {property_name(topic_id): after.to_text()}

        moved = remove_rows(self.job.address, table, self.job.topic, cut, entry)
        if moved is None:
            raise ProgressConflictError("another job archives this topic at the same time")
        return moved

    def _resolve_dead_letters(self, client: TopicClient) -> None:
        """Remove the dead letters of lost records that no batch of the table has.

        Raises `SyncError` if this job could write one of the others as a row.
        """
        ahead = dead_letters_ahead(self.job)
        if ahead:
            cut_lost_dead_letters(
                self.job, ahead, self._diverged(client, Progress(ahead)), self.notice
            )
            check_pending_dead_letters(self.job)

    def _check_unarchived(self, client: TopicClient) -> None:
        """Raise `DataLossError` if retention removed unarchived offsets, unless they are skipped.

        Retention continues while the query runs, so each task checks its range again. The commit
        of its batch records the skipped offsets.
        """
        topic = self.job.topic
        ends = agreed_progress(self.job.address.load(), self.job.topic_id).ends
        first = client.earliest([(topic, partition) for partition in ends])
        lost = [
            f"{topic}-{partition} [{end}, {first[topic, partition]})"
            for partition, end in ends.items()
            if end < first[topic, partition]
        ]
        if lost and not self.job.skip_lost:
            raise DataLossError(lost_before(lost))

    def _complete_progress(self, client: TopicClient, partitions: tuple[int, ...]) -> None:
        """Commit missing partitions and missing leader epochs to the progress."""
        job = self.job
        progress = agreed_progress(job.address.load(), job.topic_id)
        added = first_extents(client, job.topic, partitions, progress, skip_lost=job.skip_lost)
        added.update(self._with_epochs(client, progress))
        if added:
            commit_batch(job.address, Batch(job.topic_id, _NO_QUERY, _NO_BATCH, added, ()))

    def _with_epochs(self, client: TopicClient, progress: Progress) -> Mapping[int, Extent]:
        """Return empty extents at the ends whose leader epoch is unknown in the table."""
        unknown = [p for p in progress.ends if p not in progress.leader_epochs]
        places = client.latest_places([(self.job.topic, p) for p in unknown])
        return {
            p: Extent(progress.ends[p], progress.ends[p], places[self.job.topic, p].leader_epoch)
            for p in unknown
            if places[self.job.topic, p].leader_epoch != UNKNOWN
        }


def _described(cut: Divergence) -> str:
    if cut.epoch != UNKNOWN:
        return str(cut)
    where = f"{cut.topic}-{cut.partition}"
    return f"the log of {where} ends at {cut.restart}, but is archived up to {cut.offset}"
