"""Reads a planned range while archive, retention, compaction and expiry go on.

A data file may be removed after compaction has replaced it, and records may be removed from the log
after they were archived. In both cases the rows are in a newer snapshot, so the rest of the range
is planned again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

import pyarrow as pa

from lakelog.tables.hybrid.archives import TopicArchive, covered, open_archives, reload
from lakelog.tables.hybrid.files import ArchivedFile, files_of
from lakelog.tables.hybrid.plan import PlannedRange
from lakelog.tables.hybrid.rows import ArchivedRows
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.topic.errors import ArchiveUnreadableError, DataLossError, RecordsRemovedError
from lakelog.tables.topic.ranges import OffsetRange
from lakelog.tables.topic.reading import OnLoss, Reading
from lakelog.tables.topic.rows import ArrowRows

_ATTEMPTS_MAX = 8
"""One after the other without a row; with rows in between, a range may need any number."""


@dataclass(slots=True)
class HybridReading:
    """Reads one planned range, from the table, the log, or both.

    open_client: returns a client of the cluster, for records. on_loss: decides about offsets that
    neither the log nor the table has. finds_tables: whether the table of a topic counts that had
    none when the range was planned.
    """

    archived: ArchivedRows
    rows: ArrowRows
    open_client: Callable[[], AbstractContextManager[TopicClient]]
    on_loss: OnLoss
    finds_tables: bool = False
    _trimmed: list[tuple[OffsetRange, DataLossError]] = field(default_factory=list)

    def read(self, planned: PlannedRange) -> Iterator[pa.RecordBatch]:
        """Yield the records of the range in the order of their offsets.

        Raises `ArchiveUnreadableError`, `DataLossError` as `on_loss` decides, `BadRecordError` and
        `KafkaError`.
        """
        if planned.archived:
            assert planned.address is not None
            yield from self._from_table(planned.offsets, planned.address, planned.files)
        else:
            yield from self._from_log(planned)

    def _from_table(
        self, left: OffsetRange, address: TableAddress, files: Sequence[ArchivedFile]
    ) -> Iterator[pa.RecordBatch]:
        # A table that was found after the plan has a catalog of its own.
        archived = replace(self.archived, catalog=address.catalog)
        yield from read_archived(archived, left, address, files)

    def _from_log(self, planned: PlannedRange) -> Iterator[pa.RecordBatch]:
        with self.open_client() as client:
            reading = Reading(client, planned.offsets, self._note_loss)
            while True:
                has_more = reading.find_remaining()
                for lost, error in self._drain():
                    yield from self._trimmed_rows(lost, error, planned.address)
                if not has_more:
                    return
                yield from self.rows.convert(reading.remaining, reading.batches())

    def _note_loss(self, lost: OffsetRange, error: DataLossError) -> None:
        if isinstance(error, RecordsRemovedError):
            self._trimmed.append((lost, error))
        else:
            self.on_loss(lost, error)

    def _drain(self) -> list[tuple[OffsetRange, DataLossError]]:
        trimmed, self._trimmed = self._trimmed, []
        return trimmed

    def _trimmed_rows(
        self, lost: OffsetRange, error: DataLossError, address: TableAddress | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield records that left the log after the plan, if they were archived before."""
        archive = self._archive(lost, address)
        if archive is not None:
            key = (lost.topic, lost.partition)
            if covered(archive, key, lost.start, lost.end):
                yield from self._from_table(lost, archive.address, files_of(archive, [lost]))
                return
        self.on_loss(lost, error)

    def _archive(self, lost: OffsetRange, address: TableAddress | None) -> TopicArchive | None:
        """Return the newest version of the topic's table, if the query reads tables.

        The first commit of an archive may come after the plan, which has no address then.
        """
        if address is not None:
            return reload(lost.topic, lost.topic_id, address)
        if not self.finds_tables:
            return None
        with self.open_client() as client:
            archive = open_archives(client, [lost.topic]).get(lost.topic)
        is_same = archive is not None and lost.topic_id in ("", archive.topic_id)
        return archive if is_same else None


def read_archived(
    archived: ArchivedRows,
    left: OffsetRange,
    address: TableAddress,
    files: Sequence[ArchivedFile],
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an archived range in the order of their offsets.

    files: as planned. If one was removed since, the rest is read from the newest snapshot.
    Raises `ArchiveUnreadableError` and `BadRecordError`.
    """
    fruitless = 0
    while fruitless < _ATTEMPTS_MAX:
        begin = left.start
        try:
            for batch in archived.read(left, files):
                # The first column has the offsets, in order; see `ArchivedRows.read`.
                position = batch.column(0)[-1].as_py() + 1
                yield batch.select(range(1, batch.num_columns))
                left = replace(left, start=position)
            return
        except FileNotFoundError as error:
            missing = error
        fruitless = fruitless + 1 if left.start == begin else 0
        # Compaction replaced the file, and it was removed after its grace period.
        files = files_of(_newest(left, address), [left])
    raise ArchiveUnreadableError(
        f"{left}: a file of the table {'.'.join(address.identifier)} is missing, also in its "
        f"newest snapshot: {missing}"
    )


def _newest(left: OffsetRange, address: TableAddress) -> TopicArchive:
    archive = reload(left.topic, left.topic_id, address)
    if not covered(archive, (left.topic, left.partition), left.start, left.end):
        raise ArchiveUnreadableError(
            f"{left}: the table {'.'.join(address.identifier)} was replaced or rolled back "
            "while the query read it"
        )
    return archive
