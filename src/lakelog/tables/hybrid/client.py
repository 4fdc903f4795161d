"""Plans and reads topics with their tables: a topic begins where its table begins.

The first archived record at or after a time is found in the files of the table. A data file may be
removed after compaction has replaced it, and records may be removed from the log after they were
archived. In both cases the rows are in a newer snapshot, so the rest of the range is planned again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from lakelog.client.offsets import EARLIEST, OffsetAt
from lakelog.tables.hybrid.archives import (
    ArchivedFile,
    PlannedRange,
    Times,
    TopicArchive,
    covered,
    files_of,
    open_archives,
    reload,
)
from lakelog.tables.hybrid.rows import ArchivedRows
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.topic.errors import (
    ArchiveUnreadableError,
    DataLossError,
    OptionError,
    RecordsRemovedError,
)
from lakelog.tables.topic.offsets import OffsetRange, TopicPartition
from lakelog.tables.topic.rows import ArrowRows, OnLoss, Reading

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


_SCHEMA = pa.schema([pa.field("timestamp", pa.timestamp("us", "UTC"))])


def first_at(archive: TopicArchive, offset_range: OffsetRange, timestamp_ms: int) -> int | None:
    """Return the first offset of the range at or after a time, milliseconds since the epoch.

    Only files whose bounds allow such a record are read, in order, up to the first
    match. Raises as `files_of` and `ArchivedRows.read`.
    """
    files = files_of(archive, [offset_range], Times(first_us=timestamp_ms * 1000))
    rows = ArchivedRows(_SCHEMA, archive.address.catalog, null_timestamps=True, hint="")
    at = pa.scalar(timestamp_ms * 1000, pa.int64()).cast(_SCHEMA.field(0).type)
    for batch in rows.read(offset_range, files):
        later = pc.fill_null(pc.greater_equal(batch.column(1), at), False)
        matches = batch.column(0).filter(later)
        if len(matches):
            return int(matches[0].as_py())
    return None


_UNKNOWN_EPOCH = -1


class HybridClient(TopicClient):
    """`TopicClient` whose `places` include archived offsets. Arguments as there."""

    def places(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAt]:
        """Return the first offset at or after each time, in the table or in the log.

        Raises as `TopicClient.places`, and `ArchiveUnreadableError`.
        """
        offsets = super().places(timestamps)
        early = {key: time for key, time in timestamps.items() if time >= 0 or time == EARLIEST}
        if not early:
            return offsets
        archives = open_archives(self, {topic for topic, _ in early})
        if not archives:
            return offsets
        keys = [key for key in early if key[0] in archives]
        starts = super().places(dict.fromkeys(keys, EARLIEST))
        for key in keys:
            before = _first(archives[key[0]], key, early[key], starts[key].offset)
            if before is not None:
                offsets[key] = OffsetAt(before, -1, _UNKNOWN_EPOCH)
        return offsets

    def archives(self, ranges: Iterable[OffsetRange]) -> dict[str, TopicArchive]:
        """Return the newest version of the tables of the ranges' topics.

        A query that reads uncommitted records gets none, because the table has committed ones only.
        Raises `OptionError` if it needs the table, because the log begins later, and
        `ArchiveUnreadableError`.
        """
        parts = list(ranges)
        archives = open_archives(self, {part.topic for part in parts})
        if self.is_read_committed or not archives:
            return archives
        old = [part for part in parts if part.topic in archives]
        starts = super().places(dict.fromkeys(((e.topic, e.partition) for e in old), EARLIEST))
        for part in old:
            extent = archives[part.topic].extent(part.partition)
            start = starts[part.topic, part.partition].offset
            if extent is not None and part.start < min(start, extent.end):
                raise OptionError(
                    f"{part}: the log begins at offset {start}; the records before are in the "
                    "topic's table, which has committed records only. Remove the option "
                    "kafka.isolation.level=read_uncommitted, or begin at the start of the log"
                )
        return {}


def _first(archive: TopicArchive, key: TopicPartition, time: int, log_start: int) -> int | None:
    """Return the first archived offset at or after a time, if it is before the start of the log."""
    extent = archive.extent(key[1])
    if extent is None or extent.start >= log_start:
        return None
    if time == EARLIEST:
        return extent.start
    offset_range = OffsetRange(*key, extent.start, min(extent.end, log_start), archive.topic_id)
    return first_at(archive, offset_range, time)
