"""Cleaning a log: the work over records, which runs in a helper process.

1. Read the dirty segments and map each key to its newest offset, until the map is full.
2. Rewrite the segments that the map covers, in groups that fit into one segment. This drops records
   with a newer record of the same key, expired tombstones and markers, and aborted data.

Offsets never change: a batch keeps its base and last offset, its producer and its sequence, even if
it loses records. Two kinds of batches stay even when they are empty. Without the last batch of a
producer its next sequence would be unknown; without the last batch of a cleaned segment there would
be a gap before the next segment. A batch with tombstones gets its delete horizon when it is first
cleaned, and keeps it from then on (KAFKA-8522).

Source: `Cleaner` of `org.apache.kafka.storage.internals.log`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise

from lakelog.records.batch import HEADER, MAX_TIMESTAMP, RECORDS_COUNT, BatchHeader, CorruptRecord
from lakelog.records.record import record_bytes
from lakelog.runtime.api import Buffer, Disk
from lakelog.storage.compaction.files import CleanedSegment, SourceFiles, Throttle
from lakelog.storage.compaction.job import (
    CleanedGroup,
    CompactionDone,
    CompactionJob,
    CompactionStats,
    Source,
)
from lakelog.storage.compaction.records import (
    OffsetMap,
    Selection,
    delete_horizon,
    emptied,
    note_keys,
    rebuilt,
    select_records,
)
from lakelog.storage.compaction.transactions import CleanedTransactions
from lakelog.storage.errors import CorruptLog
from lakelog.storage.files import INDEX, TIME_INDEX, file_name
from lakelog.storage.validation import DECODED_BYTES_MAX

_RELATIVE_MAX = 0x7FFFFFFF


def compact(
    disk: Disk, job: CompactionJob, throttle: Throttle
) -> Iterator[CleanedGroup | CompactionDone]:
    """Yield each group as soon as its files are durable, and finally `CompactionDone`.

    `throttle` is called with the bytes of every read and write. Raises `FileNotFoundError` for a
    deleted segment, `CorruptLog` for a damaged one, and `OSError`.
    """
    with ExitStack() as files:
        sources = SourceFiles(disk, job, throttle, files)
        cleaning = _Cleaning(disk, job, sources, throttle)
        cleaning.build_map()
        for group in cleaning.groups():
            yield cleaning.clean(group)
    end_offset = max(cleaning.map.latest_offset + 1, job.first_dirty_offset)
    yield CompactionDone(end_offset, cleaning.stats)


class _Cleaning:
    """One job: `build_map` first, then `clean` for each of `groups`."""

    def __init__(
        self, disk: Disk, job: CompactionJob, sources: SourceFiles, throttle: Throttle
    ) -> None:
        self._disk = disk
        self._job = job
        self._sources = sources
        self._throttle = throttle
        self.map = OffsetMap(job.map_bytes, job.map_load_factor)
        self.stats = CompactionStats()
        self._aborted = sources.aborted(job)
        self._transactions = CleanedTransactions(self._aborted)

    # Noting keys

    def build_map(self) -> None:
        transactions, start = CleanedTransactions(self._aborted), self._job.first_dirty_offset
        for source in self._job.segments:
            if source.end_offset > start and not self._note_segment(source, transactions):
                return

    def _note_segment(self, source: Source, transactions: CleanedTransactions) -> bool:
        """Note the keys of a segment; return false if the map got full before its end.

        The map may exceed its limit by one batch, so that each job makes progress.
        """
        keys, start = self.map, self._job.first_dirty_offset
        for position, batch, header in self._sources.batches(source):
            if header.last_offset < start:
                continue
            # Before the batch, not within it: the map must hold all keys of a batch or none,
            # because `latest_offset` counts whole batches.
            if keys.is_full:
                return False
            if header.is_control:
                try:
                    transactions.on_marker(batch, header)
                except CorruptRecord as error:
                    raise CorruptLog(self._sources.path(source), position, str(error)) from error
            # A record of an aborted transaction must not supersede a committed record of its key.
            elif not transactions.on_data(header) and header.records_count:
                self._note_keys(batch, header)
            keys.latest_offset = header.last_offset
        # Offsets may be missing behind the last batch; the next job begins at the next segment.
        keys.latest_offset = source.end_offset - 1
        return True

    def _note_keys(self, batch: bytes, header: BatchHeader) -> None:
        """Note the keys of a batch; note no key if its records cannot be decoded."""
        offsets, base = self.map.offsets, header.base_offset
        try:
            data = self._records(batch, header)
            note_keys(data, header.records_count, base, self._job.first_dirty_offset, offsets)
        except CorruptRecord:
            # The keys read so far might be wrong as well. Without them, older records of these keys
            # stay, which is always safe.
            for key in [key for key, offset in offsets.items() if offset >= base]:
                del offsets[key]

    def _records(self, batch: bytes, header: BatchHeader) -> bytes:
        return record_bytes(batch, header, DECODED_BYTES_MAX)

    # Cleaning

    def groups(self) -> Iterator[list[Source]]:
        """Yield groups of adjacent segments that the map covers and that fit into one segment."""
        job = self._job
        group: list[Source] = []
        size = index_size = time_size = 0
        for source in job.segments:
            # Behind the map's end it is not known which records have newer ones.
            if source.base_offset > self.map.latest_offset:
                break
            index, time = self._size(source, INDEX), self._size(source, TIME_INDEX)
            fits = (
                size + source.size <= job.segment_bytes
                and index_size + index <= job.segment_index_bytes
                and time_size + time <= job.segment_index_bytes
                and bool(group)
                and source.end_offset - 1 - group[0].base_offset <= _RELATIVE_MAX
            )
            if group and not fits:
                yield group
                group, size, index_size, time_size = [], 0, 0, 0
            group.append(source)
            size, index_size, time_size = size + source.size, index_size + index, time_size + time
        if group:
            yield group

    def _size(self, source: Source, suffix: str) -> int:
        try:
            return self._disk.size(self._job.folder / file_name(source.base_offset, suffix))
        except FileNotFoundError:
            return 0

    def clean(self, group: list[Source]) -> CleanedGroup:
        """Write a group of segments as one cleaned segment, durably."""
        assert all(one.end_offset == next_.base_offset for one, next_ in pairwise(group))
        job, first, last = self._job, group[0], group[-1]
        target = CleanedSegment(self._disk, job.folder, first.base_offset, job.index_interval_bytes)
        try:
            for source in group:
                self._clean_into(target, source, last.end_offset)
            # Each cleaned segment has a transaction index of its own.
            retained, self._transactions.retained = self._transactions.retained, []
            suffixes = target.finish(retained, last.modified_ms)
        except (OSError, CorruptLog):
            target.discard()
            raise
        self.stats.bytes_written += target.size
        sources = tuple(source.base_offset for source in group)
        return CleanedGroup(first.base_offset, last.end_offset, target.size, sources, suffixes)

    def _clean_into(self, target: CleanedSegment, source: Source, end_offset: int) -> None:
        stats = self.stats
        for position, batch, header in self._sources.batches(source):
            stats.bytes_read += header.size
            stats.records_read += header.records_count
            try:
                kept = self._filter(batch, header, header.last_offset + 1 == end_offset)
            except CorruptRecord as error:
                if header.is_control:
                    raise CorruptLog(self._sources.path(source), position, str(error)) from error
                # An unreadable batch stays as it is: a reader reports it, and nothing is lost
                # silently.
                kept = batch
                stats.unreadable_batches += 1
            if kept is not None:
                self._transactions.on_kept(header)
                newest, count = _newest_and_count(kept)
                target.append(kept, header.last_offset, newest)
                stats.records_written += count
                self._throttle(len(kept))

    def _filter(self, batch: bytes, header: BatchHeader, is_end: bool) -> Buffer | None:
        """Return the cleaned batch, or `None` to drop it. Raises `CorruptRecord`.

        is_end: the batch ends the cleaned segment, so at least its header stays. A marker is void
        if no batch of its transaction is left.
        """
        horizon = delete_horizon(header)
        expired = horizon is not None and horizon <= self._job.now_ms
        if header.is_control:
            is_void = self._transactions.on_marker(batch, header)
            dropped = is_void and expired
        else:
            is_void = dropped = self._transactions.on_data(header)
        # Empty batches were kept by an earlier compaction for their offsets or their producer,
        # which is decided again here.
        if dropped or not header.records_count:
            return self._empty(header, is_end)
        if not header.is_control:
            return self._filter_records(batch, header, is_end, expired)
        # A marker whose transaction has no batch left gets a delete horizon first. Readers that are
        # still in the middle of the transaction need it until then (KIP-534).
        if not is_void or horizon is not None:
            return batch
        data = self._records(batch, header)
        whole = Selection([(0, len(data))], header.records_count, False, 0)
        return rebuilt(header, data, whole, self._new_horizon())

    def _filter_records(
        self, batch: bytes, header: BatchHeader, is_end: bool, expired: bool
    ) -> Buffer | None:
        data = self._records(batch, header)
        kept = select_records(
            data,
            header.records_count,
            header.base_offset,
            self.map.offsets,
            self.map.latest_offset,
            drop_tombstones=expired,
        )
        if not kept.records_count:
            return self._empty(header, is_end)
        # Set once and kept by later compactions. Kafka once derived it from the time of the last
        # cleaning, and frequent cleanings kept tombstones for ever (KAFKA-8522).
        if kept.has_tombstone and not header.has_delete_horizon:
            return rebuilt(header, data, kept, self._new_horizon())
        if kept.records_count == header.records_count:
            return batch
        return rebuilt(header, data, kept, None)

    def _empty(self, header: BatchHeader, is_end: bool) -> Buffer | None:
        return emptied(header) if is_end or self._is_last_of_producer(header) else None

    def _new_horizon(self) -> int:
        return self._job.now_ms + self._job.delete_retention_ms

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self._job.producers.get(header.producer_id) if header.producer_id >= 0 else None
        if last is None:
            return False
        # After a restart without a snapshot the producer's next sequence follows from this batch
        # alone.
        if last.offset >= 0:
            return header.last_offset == last.offset
        # The producer has only markers here: the last of its epoch keeps the epoch alive.
        return header.is_control and header.producer_epoch == last.epoch


def _newest_and_count(batch: Buffer) -> tuple[int, int]:
    fields = HEADER.unpack_from(batch)
    return (fields[MAX_TIMESTAMP] if fields[RECORDS_COUNT] else -1), fields[RECORDS_COUNT]
