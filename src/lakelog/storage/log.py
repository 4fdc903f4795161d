"""One partition's log: an append-only sequence of batches in segments.

`Log` holds the start and the end of the log and coordinates its parts, which do not refer to it:

    segments        the files (`segments.segment_list`)
    flushes         how far they are durable (`flush`)
    producers       idempotent producers and transactions (`producers.state`), with `snapshots`
    leader_epochs   where each leader epoch began (`epochs`)
    reader          reads by offset (`reading.reader`)

The log has one owner and is never called from two threads; only the `run` of jobs leaves the event
loop (`FlushJob`, `Preparation`). Offsets are of records, sizes in bytes, times in milliseconds.

`log_start_offset` and `log_end_offset` only move forward, except in `truncate_to`. A failed append
leaves no trace: every piece of state moves after the write.

Source: `UnifiedLog` of `org.apache.kafka.storage.internals.log`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from lakelog.base.config.keys.topics import FSYNC
from lakelog.base.config.log_config import LogConfig
from lakelog.base.errors import ErrorCode, KafkaError, is_shortage
from lakelog.records.batch import (
    BASE_OFFSET,
    BASE_SEQUENCE,
    BATCH_LENGTH,
    LAST_OFFSET_DELTA,
    LENGTH_OVERHEAD,
    MAX_TIMESTAMP,
    PRODUCER_ID,
    BatchHeader,
    patch_offset_and_epoch,
    read_header,
    set_append_time,
)
from lakelog.records.control import EndTransactionMarker, build_marker, read_marker
from lakelog.runtime.api import Buffer
from lakelog.storage.checkpoint import LEADER_EPOCHS, encode_epochs
from lakelog.storage.coalescing import (
    RELATIVE_OFFSET_MAX,
    can_coalesce,
    coalesce,
    coalesce_fetched,
    note_producers,
    read_fetched,
)
from lakelog.storage.epochs import EpochCache
from lakelog.storage.files import replace
from lakelog.storage.flush import Flushes, FlushJob
from lakelog.storage.preparation import NotReady, wait_for
from lakelog.storage.producers.beginnings import Verification
from lakelog.storage.producers.replay import (
    TruncatedState,
    Truncation,
    TruncationJob,
    cut_aborted,
    keep_aborted,
    rebuild,
    replace_aborted,
    write_aborted,
)
from lakelog.storage.producers.snapshots import ProducerSnapshots
from lakelog.storage.producers.state import BatchMetadata, ProducerStateTable
from lakelog.storage.reading.aborted import aborted_in
from lakelog.storage.reading.reader import LogReader
from lakelog.storage.reading.seeking import check_append, check_seek
from lakelog.storage.reading.timestamps import Search, search_max_timestamp, search_timestamp
from lakelog.storage.retention import count_deletable
from lakelog.storage.segments.handles import LogSlice
from lakelog.storage.segments.segment import Segment
from lakelog.storage.segments.segment_list import SegmentList
from lakelog.storage.segments.txn_index import AbortedTransaction
from lakelog.storage.validation import Origin, check_incoming


class AppendResult(NamedTuple):
    """Offsets of a batch. For a `duplicate` they were assigned earlier; nothing was written."""

    base_offset: int
    last_offset: int
    append_time_ms: int
    """-1 unless the topic has LogAppendTime."""
    log_start_offset: int
    duplicate: bool


class Log:
    """The log of one partition: appends, reads, flushes, retention and truncation."""

    __slots__ = (
        "_random_below",
        "_truncated",
        "before_truncate",
        "can_coalesce",
        "completes_markers",
        "config",
        "flushes",
        "leader_epochs",
        "log_end_offset",
        "log_start_offset",
        "partition",
        "producers",
        "reader",
        "segments",
        "snapshots",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        topic_id: bytes,
        config: LogConfig,
        segments: SegmentList,
        producers: ProducerStateTable,
        snapshots: ProducerSnapshots,
        leader_epochs: EpochCache,
        *,
        random_below: Callable[[int], int],
        log_start_offset: int = 0,
        recovery_point: int = 0,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.config = config
        """The topic's settings, which `use_config` replaces."""
        self.can_coalesce = can_coalesce(config)
        """Whether `append_coalesced` may be tried; see `coalescing.can_coalesce`."""
        self.segments = segments
        self.log_start_offset = log_start_offset
        self.log_end_offset = segments.active.next_offset
        assert 0 <= log_start_offset <= self.log_end_offset
        assert 0 <= recovery_point <= self.log_end_offset
        self.flushes = Flushes(segments, recovery_point)
        self.leader_epochs = leader_epochs
        self.producers = producers
        self.snapshots = snapshots
        self.reader = LogReader(segments, snapshots)
        self.before_truncate: Callable[[int], None] | None = None
        """Called with the new end before records below the recovery point are removed.

        The recovery point is lower already.
        """
        self.completes_markers = True
        """Whether a marker counts when it is appended, or with durability `fsync` flushed.

        Otherwise the owner of the log calls `producers.commit_markers`.
        """
        self._random_below = random_below
        self._truncated: TruncatedState | None = None
        """The result of a job for the next truncation."""

    def use_config(self, config: LogConfig) -> None:
        """Apply the topic's settings; index settings apply from the next segment on."""
        self.config = config
        self.can_coalesce = can_coalesce(config)
        # Computed from the old `segment.ms`; `is_due` computes it again.
        self.segments.active.roll_after = -1
        if config.durability != FSYNC and self.completes_markers:
            # Without `fsync` no flush will commit the markers that still wait for one.
            self.producers.commit_markers(self.log_end_offset)

    @property
    def folder(self) -> Path:
        """The log's directory."""
        return self.segments.folder

    @property
    def size(self) -> int:
        """Bytes of all `.log` files, without indexes."""
        return self.segments.size

    @property
    def broken(self) -> bool:
        """Whether the device failed: the durable end is unknown, and nothing is retried."""
        return self.flushes.broken

    @property
    def recovery_point(self) -> int:
        """Every record before this offset is on the device."""
        return self.flushes.recovery_point

    @property
    def last_stable_offset(self) -> int:
        """The end of the records that read-committed consumers may get (exclusive; KIP-98).

        Every transaction that begins below it is decided, and its marker is committed.
        """
        first = self.producers.first_unstable_offset
        # DeleteRecords may remove the beginning of an open transaction. The stable offset must not
        # fall below the start, or read-committed consumers would be out of range for good.
        return self.log_end_offset if first < 0 else max(first, self.log_start_offset)

    @property
    def durable_stable_offset(self) -> int:
        """The last stable offset as a power failure would leave it.

        Every transaction that begins below it is on the device, and so is its marker.
        """
        flushes = self.flushes
        if flushes.recovery_point >= self.log_end_offset:
            return self.last_stable_offset
        # A flush says nothing about transactions that began or ended after it had begun, so the
        # stable offset of that moment counts.
        return min(flushes.stable_point, flushes.recovery_point)

    def assign_epoch(self, leader_epoch: int) -> None:
        """Begin a leader epoch at the log's end, when this broker becomes the leader (KIP-101)."""
        self.leader_epochs.assign(leader_epoch, self.log_end_offset)

    def forget_empty_epochs(self) -> None:
        """Forget leader epochs without records, before this replica follows another leader.

        The next records may be of an epoch before them, if that leader wrote them earlier.
        """
        self.leader_epochs.truncate_from_end(self.log_end_offset)

    # Writing

    def append(
        self,
        batch: bytearray | memoryview,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: Origin = "client",
        verification: Verification | None = None,
        sampled: bool = False,
    ) -> AppendResult:
        """Append exactly one batch, after writing its offset and leader epoch into it.

        For a batch that begins a transaction here, `verification` is the result of
        `producers.start_verification` before the transaction's coordinator was asked. The records
        of a `sampled` batch are verified unless the topic verifies none.

        Raises `KafkaError` with nothing done: CORRUPT_MESSAGE, MESSAGE_TOO_LARGE,
        RECORD_LIST_TOO_LARGE (larger than a segment), INVALID_TIMESTAMP, INVALID_PRODUCER_EPOCH,
        OUT_OF_ORDER_SEQUENCE_NUMBER, LEADER_NOT_AVAILABLE (see `beginnings`),
        INVALID_TXN_STATE or INVALID_RECORD. Raises `VerificationVoidedError` and `SlowBatchError`.
        After an `OSError` the log is as before and the batch may be retried.
        """
        config, producers = self.config, self.producers
        fields = check_incoming(batch, config, now_ms, origin, producers.entries, sampled=sampled)
        entry, header, append_time, timestamp = None, None, -1, fields[MAX_TIMESTAMP]
        if fields[PRODUCER_ID] >= 0:
            entry = producers.expecting(fields)
            # A batch that continues its producer's last batch needs no rule of `admit`.
            if entry is None:
                # Before anything is written: a retry must get the offsets of its first attempt.
                duplicate = producers.admit(fields, origin, verification)
                if duplicate is not None:
                    return self._repeated(duplicate)
                header = BatchHeader(*fields)
        if config.message_timestamp_type != "CreateTime":
            append_time = timestamp = now_ms
            header = header or BatchHeader(*fields)
            set_append_time(batch, 0, header, now_ms)
        # The CRC covers neither base offset nor leader epoch, so both are written into the batch
        # without computing it again (the format of KIP-98 was made for this).
        base, segment, size = self.log_end_offset, self.segments.active, len(batch)
        last = base + fields[LAST_OFFSET_DELTA]
        patch_offset_and_epoch(batch, 0, base, leader_epoch)
        try:
            if (
                timestamp >= segment.roll_after
                or segment.indexes.full
                or segment.size + size > config.segment_bytes
                or last - segment.base_offset > RELATIVE_OFFSET_MAX
            ) and self._must_roll(segment, size, last, timestamp, now_ms):
                self.roll(now_ms)
                segment = self.segments.active
            # As `_write`, which is not called: every batch of most clients passes here.
            if leader_epoch > self.leader_epochs.latest:
                self.leader_epochs.assign(leader_epoch, base)
            position = segment.size
            segment.append(batch, last, timestamp)
            self.segments.known_batches.note(base, (segment, position, size))
            self.log_end_offset = producers.end_offset = last + 1
        except OSError as error:
            self._note_failure(error, batch)
            raise
        if entry is not None:
            entry.add(fields[BASE_SEQUENCE], fields[LAST_OFFSET_DELTA], last, timestamp)
        elif fields[PRODUCER_ID] >= 0:
            assert header is not None
            producers.update(header, base)
        # Half the time of the constructor, which is a function in Python.
        return tuple.__new__(AppendResult, (base, last, append_time, self.log_start_offset, False))

    def append_coalesced(
        self, batches: Sequence[memoryview], *, leader_epoch: int, now_ms: int
    ) -> list[int]:
        """Append as many of a client's batches as one write can; return their base offsets.

        The result is empty if the first batch needs `append`, as the first after a start does. The
        other batches are left to `append`, too. Raises `OSError`; the log is then as before.
        """
        segment, end = self.segments.active, self.log_end_offset
        if (
            not self.can_coalesce
            or segment.indexes.loaded is None
            or segment.indexes.full
            or leader_epoch > self.leader_epochs.latest
        ):
            return []
        # A group may not end in another segment: it is one write, and its index entries must all
        # fit.
        if len(batches) > 1:  # one batch fits unless `full`
            batches = batches[: segment.indexes.entries_left]
        headers, offsets, producer = coalesce(
            batches, self.config, segment, end, self.producers, leader_epoch, now_ms
        )
        if not headers:
            return []
        batches, position = batches[: len(headers)], segment.size
        try:
            segment.append_coalesced(batches, headers)
        except OSError as error:
            self._note_failure(error, *batches)
            raise
        self.segments.known_batches.note(end, (segment, position, len(batches[0])))
        self.log_end_offset = self.producers.end_offset = segment.next_offset
        if producer is not None:
            producer.add_coalesced(headers, end)
        return offsets

    def check_marker(self, *, commit: bool) -> None:
        """Raise `NotReady` if `append_marker` would wait for indexes; `CorruptLog` for damage."""
        check_append(self.segments)
        if not commit:
            aborted_in(self.segments, self.snapshots, self.segments.active)

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        marker: EndTransactionMarker,
        *,
        leader_epoch: int,
        now_ms: int,
        transaction_version: int,
    ) -> tuple[int, int]:
        """End a producer's transaction, if it has one here; return the marker's offset and size.

        Raises `KafkaError` with nothing done: INVALID_PRODUCER_EPOCH or
        TRANSACTION_COORDINATOR_FENCED. Raises `NotReady` and `CorruptLog` as `check_marker`. After
        an `OSError` the log is as before.
        """
        # The index is loaded before the marker is decided on; `NotReady` from within the append
        # would leave half of it.
        self.check_marker(commit=marker.commit)
        self.producers.check_marker(producer_id, producer_epoch, marker, transaction_version)
        # A marker without an open transaction is written nevertheless: it raises the producer's
        # epoch here, and so fences late batches of the transaction (KIP-890).
        batch = build_marker(producer_id, producer_epoch, marker, now_ms)
        header = read_header(batch)
        if self.config.message_timestamp_type != "CreateTime":
            set_append_time(batch, 0, header, now_ms)
        offset = self.log_end_offset
        patch_offset_and_epoch(batch, 0, offset, leader_epoch)
        try:
            if self._must_roll(self.segments.active, len(batch), offset, now_ms, now_ms):
                self.roll(now_ms)
            self._write_marker(batch, header, marker, offset, leader_epoch, transaction_version)
        except OSError as error:
            self._note_failure(error)
            raise
        return offset, len(batch)

    def append_coalesced_fetched(self, records: memoryview) -> int:
        """Append as many batches at the start of a leader's response as one write can.

        Return their size in bytes; 0 if the first batch needs `append_fetched`. Raises `OSError`;
        the log is then as before.
        """
        segment, indexes = self.segments.active, self.segments.active.indexes
        if indexes.loaded is None or indexes.full:
            return 0
        producers, end = self.producers, self.log_end_offset
        size_max, epoch = self.config.segment_bytes, self.leader_epochs.latest
        size, headers, entries = coalesce_fetched(records, segment, end, size_max, epoch, producers)
        if not size:
            return 0
        first = headers[0]
        location = segment, segment.size, first[BATCH_LENGTH] + LENGTH_OVERHEAD
        try:
            segment.append_coalesced((records[:size],), headers)
        except OSError as error:
            self._note_failure(error)
            raise
        self.segments.known_batches.note(first[BASE_OFFSET], location)
        self.log_end_offset = producers.end_offset = segment.next_offset
        note_producers(headers, entries)
        return size

    def append_fetched(self, batch: memoryview, *, now_ms: int) -> int:
        """Append one batch as the leader stores it, and return its last offset.

        A follower changes no byte. Compaction at the leader may have left a gap before the batch.
        The leader has validated the records; this checks what would damage the log.

        Raises `CorruptRecord` for a batch that is torn, altered, below the log's end, or of an
        older leader epoch than the log's last batch. Raises `NotReady` and `CorruptLog` as
        `check_marker`. After an `OSError` the log is as before.
        """
        # The leader epoch of the batch is kept: it is the history by which replicas find where
        # their logs diverge (KIP-101).
        header = read_fetched(batch, self.log_end_offset, self.leader_epochs.latest)
        marker = read_marker(batch, header) if header.is_control else None
        base, last = header.base_offset, header.last_offset
        if marker is not None:
            # Before anything is written: a marker that had to wait for indexes half-way would leave
            # its entry in the `.txnindex` without the marker.
            self.check_marker(commit=marker.commit)
        try:
            if self._must_roll_for(header, now_ms):
                self.roll(now_ms)
            if marker is not None:
                self._write_marker(batch, header, marker, base, header.partition_leader_epoch)
            else:
                self._write(batch, base, last, header.max_timestamp, header.partition_leader_epoch)
                if header.producer_id >= 0 and not header.is_control:
                    self.producers.update(header, base)
        except OSError as error:
            self._note_failure(error)
            raise
        return last

    def _must_roll_for(self, header: BatchHeader, now_ms: int) -> bool:
        """Return whether a fetched batch needs another segment; a segment may be one batch."""
        segment = self.segments.active
        # The leader's `segment.bytes` may have been larger when it accepted the batch. A follower
        # must not reject a record that is committed.
        if header.size > self.config.segment_bytes:
            return segment.size > 0
        return self._must_roll(
            segment, header.size, header.last_offset, header.max_timestamp, now_ms
        )

    def _write_marker(
        self,
        batch: bytearray | memoryview,
        header: BatchHeader,
        marker: EndTransactionMarker,
        offset: int,
        leader_epoch: int,
        transaction_version: int = 0,
    ) -> None:
        """Write the transaction's entry in the `.txnindex`, if it is aborted, then the marker.

        Without the entry, consumers would read an aborted transaction as if it were committed.
        """
        segment = self.segments.active
        aborted = None if marker.commit else self.producers.ending(header.producer_id, offset)
        if aborted is not None:
            # The entry comes first: after a crash in between, the entry names a marker that does
            # not exist, which a rebuild of the index removes. The other order would lose it
            # unnoticed.
            write_aborted(segment, aborted)
        try:
            last = offset + header.last_offset_delta
            self._write(batch, offset, last, header.max_timestamp, leader_epoch)
        except OSError:
            with suppress(OSError):
                # If this fails too, the index stays torn, and the next entry truncates it first.
                cut_aborted(segment)
            raise
        counts = self.completes_markers and self.config.durability != FSYNC
        self.producers.end_transaction(
            header,
            marker,
            transaction_version=transaction_version,
            uncommitted_at=-1 if counts else offset,
        )
        if aborted is not None:
            keep_aborted(segment, aborted)
            self.segments.has_aborted = True

    def _write(
        self, batch: Buffer, base: int, last: int, timestamp: int, leader_epoch: int
    ) -> None:
        """Write one batch after a roll that was due; `timestamp` is its greatest, in ms."""
        segment = self.segments.active
        if leader_epoch > self.leader_epochs.latest:
            self.leader_epochs.assign(leader_epoch, base)
        position = segment.size
        segment.append(batch, last, timestamp)
        # State moves after the write, so that a failed one leaves no trace.
        self.segments.known_batches.note(base, (segment, position, len(batch)))
        self.log_end_offset = self.producers.end_offset = last + 1

    def _note_failure(self, error: OSError, *received: bytearray | memoryview) -> None:
        """Undo the offsets in a client's batches: a retry must be as valid as the first attempt."""
        for batch in received:
            patch_offset_and_epoch(batch, 0, 0, -1)
        self.flushes.broken |= not is_shortage(error)

    def _repeated(self, batch: BatchMetadata) -> AppendResult:
        by_broker = self.config.message_timestamp_type == "LogAppendTime"
        append_time = batch.timestamp if by_broker else -1
        start = self.log_start_offset
        return AppendResult(batch.first_offset, batch.last_offset, append_time, start, True)

    def _must_roll(
        self, segment: Segment, size: int, last: int, timestamp: int, now_ms: int
    ) -> bool:
        config = self.config
        if size > config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"a batch of {size} bytes; segment.bytes is {config.segment_bytes}",
            )
        return (
            segment.indexes.full
            or segment.size + size > config.segment_bytes
            or last - segment.base_offset > RELATIVE_OFFSET_MAX
            or (
                timestamp >= segment.roll_after
                and segment.is_due(timestamp, now_ms, config.segment_ms - segment.jitter_ms)
            )
        )

    def roll(self, now_ms: int) -> Segment:
        """Seal the active segment and begin the next one at the log's end.

        Return the active segment: the new one, or the old one if it is empty. Raises `CorruptLog`
        or `OSError`; the old segment then stays active, unless the log is `broken`.
        """
        segments, config, base = self.segments, self.config, self.log_end_offset
        old = segments.active
        if old.size == 0 and old.base_offset == base:
            return old
        # The old segment gets all index entries before the new file exists: a start trusts the
        # index of a segment that has a successor.
        old.seal()
        jitter = min(config.segment_jitter_ms, config.segment_ms)
        jitter_ms = self._random_below(jitter) if jitter > 0 else 0
        try:
            # The snapshot at the new base comes first: a start replays only the segments after it.
            self.snapshots.write(self.producers)
            return segments.begin(base, config, created_ms=now_ms, jitter_ms=jitter_ms)
        except OSError:
            try:
                # A file left at `base` would hide records that the old segment gets beyond it.
                segments.take_back(base)
            except OSError:
                self.flushes.broken = True
            raise

    # Reading

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        end_offset: int,
        min_one: bool = True,
        may_wait: bool = True,
    ) -> LogSlice | None:
        """Return whole batches, from the batch with `offset` to at most `end_offset`, exclusive.

        At most `max_bytes`; with `min_one` the first batch even if it is larger. `None` when there
        is nothing. Raises `KafkaError` (OFFSET_OUT_OF_RANGE), and as `LogReader.read`.
        """
        end = self.log_end_offset
        if not self.log_start_offset <= offset <= end:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is outside {self.log_start_offset} to {end}",
            )
        if offset >= end_offset or offset == end:
            return None
        return self.reader.read(offset, max_bytes, end_offset, min_one, may_wait)

    def aborted_transactions(
        self, offset: int, log_slice: LogSlice, *, may_wait: bool = True
    ) -> list[AbortedTransaction]:
        """Return aborted transactions with records in what `read` found from `offset` on.

        The read ended at or before the last stable offset. Sorted by first offset. Raises as
        `LogReader.aborted_transactions`.
        """
        if not self.segments.has_aborted:
            return []
        stable = self.last_stable_offset
        return self.reader.aborted_transactions(offset, log_slice, stable, may_wait=may_wait)

    def search_time(self, timestamp: int | None) -> Search:
        """Find the first record at or after a time (ms).

        Without `timestamp`, find the first record with the greatest timestamp. Raises as the
        searches in `reading.timestamps`.
        """
        segments, epochs, start = self.segments, self.leader_epochs, self.log_start_offset
        if timestamp is None:
            return search_max_timestamp(segments, epochs, start)
        return search_timestamp(segments, epochs, start, timestamp)

    # Durability

    def begin_flush(self, *, beside_others: bool = False) -> FlushJob | None:
        """Return the job of a flush; `None` when all is durable or a flush is in progress.

        A job with `beside_others` does not wait for other jobs, and repeats their unfinished work.
        Raises `OSError` or `CorruptLog`; the next flush then begins with the same work.
        """
        end = self.log_end_offset
        if not self.flushes.is_due(end, beside_others=beside_others):
            return None
        if self.leader_epochs.is_behind(end):
            self.write_epochs()
        # Both offsets are read now: records and markers that are appended while the thread syncs
        # are not covered by its result.
        return self.flushes.begin(end, self.last_stable_offset)

    def finish_flush(self, job: FlushJob) -> None:
        """Advance the durable end after `job.run()` has returned.

        Markers below it become committed with durability `fsync`.
        """
        if self.flushes.finish(job) and self.completes_markers:
            self.producers.commit_markers(self.flushes.recovery_point)

    def flush(self) -> None:
        """Block until everything appended is durable, whatever else is being flushed.

        Raises `OSError`, as `Flushes.run_now`, or `CorruptLog`, as `begin_flush`.
        """
        job = self.begin_flush(beside_others=True)
        if job is not None:
            self.flushes.run_now(job)
            self.finish_flush(job)

    def write_epochs(self) -> None:
        """Write the leader epochs, which the next flush makes durable. Raises `OSError`."""
        path = self.folder / LEADER_EPOCHS
        replace(self.segments.disk, path, encode_epochs(self.leader_epochs.entries))
        self.leader_epochs.note_saved()
        # The folder, too: the file was replaced by a rename, which is durable only with its folder.
        self.segments.unsynced |= {path, self.folder}

    def write_out(self) -> None:
        """Write all pending index entries before a last flush; no other log is changed.

        Raises `OSError` or `CorruptLog`.
        """
        self.segments.finish()
        if self.producers.end_offset > self.log_start_offset:
            self.snapshots.write(self.producers)
        if self.leader_epochs.is_behind(self.log_end_offset):
            self.write_epochs()

    def abandon(self) -> None:
        """Close all files without writing anything."""
        self.segments.abandon()

    def move_to(self, folder: Path) -> None:
        """Use `folder` from now on: the log's directory has been renamed."""
        self.snapshots.folder = folder
        self.segments.move_to(folder)

    # Removing records from the start (retention), from the end, or within (compaction)

    def delete_old_segments(
        self,
        now_ms: int,
        high_watermark: int | None = None,
        *,
        at_once: bool = False,
        may_wait: bool = True,
    ) -> int:
        """Apply retention and return how many segments were deleted; call it every few minutes.

        now_ms: milliseconds since the epoch. The files are renamed now, and removed by a later call
        after `file.delete.delay.ms`, or by the next call with `at_once`. After an `OSError` the
        next call removes the remaining segments below the log's start. With `may_wait` it loads
        missing indexes; otherwise it raises `NotReady` for them.
        """
        segments = self.segments
        segments.removed.remove_due(math.inf if at_once else now_ms)
        # The helper reads these segments, and `finish_swap` relies on their place in the list.
        if segments.swapping:
            return 0
        # Only committed segments are deleted. A later leader may lack the others, and the start of
        # this log would then lie beyond its end.
        committed = self.log_end_offset if high_watermark is None else high_watermark
        start, end = self.log_start_offset, self.log_end_offset
        ask = partial(count_deletable, segments, self.config, now_ms, start, end, committed)
        count = wait_for(ask, may_wait=may_wait)
        if not count:
            return 0
        if count == len(segments):
            # A roll writes the indexes.
            wait_for(partial(check_append, segments), may_wait=may_wait)
        if count == len(segments) and not self._roll_to_retain(now_ms):
            count -= 1
        start = segments[count].base_offset
        # The start moves first, so that a deletion that fails half-way leaves no served records.
        self.advance_log_start(start)
        self.snapshots.remove_before(start)
        for _ in range(count):
            segments.delete_first(now_ms + self.config.file_delete_delay_ms)
        assert segments[0].base_offset <= self.log_start_offset <= self.log_end_offset
        return count

    def expired_bytes(self, now_ms: int, high_watermark: int) -> int:
        """Return the bytes that retention would delete below `high_watermark` if it ran now.

        Raises `NotReady` if an index has to be loaded first.
        """
        segments, start, end = self.segments, self.log_start_offset, self.log_end_offset
        args = (segments, self.config, now_ms, start, end, high_watermark)
        count = count_deletable(*args)
        return sum(segment.size for segment in segments[:count])

    def _roll_to_retain(self, now_ms: int) -> bool:
        """Return whether the active segment may be deleted too; without space only older ones."""
        try:
            self.roll(now_ms)
        except OSError as error:
            if len(self.segments) == 1 or not is_shortage(error):
                raise
            return False
        # Offsets never restart: the new segment has to be durable before the old ones are gone.
        self.segments.disk.sync_dir(self.folder)
        return True

    def advance_log_start(self, offset: int) -> None:
        """Hide everything before `offset`; whole segments are deleted with the next retention run.

        Raises `KafkaError` (OFFSET_OUT_OF_RANGE) for an offset beyond the end of the log.
        """
        if not offset <= self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"the log cannot start at {offset}: it ends at {self.log_end_offset}",
            )
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            # The epoch at the start stays known: followers ask for it (KIP-101).
            self.leader_epochs.truncate_from_start(offset)

    def truncate_to(self, offset: int, *, may_wait: bool = True) -> None:
        """Remove the batch that contains `offset` and all later ones, as a follower does (KIP-101).

        With `may_wait` it loads indexes and replays the producers of the remaining log; otherwise
        it raises `NotReady` for that, with nothing removed. Raises `OSError` or `CorruptLog`.
        """
        if offset >= self.log_end_offset:
            return
        keep, end = wait_for(partial(self._place_of_cut, offset), may_wait=may_wait)
        truncation = Truncation.of(self.segments, keep, end)
        state = wait_for(partial(self._state_after, truncation), may_wait=may_wait)
        self._cut(keep, end, state.last)
        # Sequences of removed batches must be accepted again.
        self.producers.load(state.entries)
        self.producers.end_offset = end
        if state.truncation.is_reindexed:
            replace_aborted(self.segments.active, state.aborted)
        self.segments.note_aborted()

    def _place_of_cut(self, offset: int) -> tuple[int, int]:
        """Return the number of segments to keep, and their end: where the batch begins.

        Raises `NotReady`, `CorruptLog` and `OSError`.
        """
        segments = self.segments
        keep = segments.count_from(offset)
        if not keep:
            return 0, offset
        last = segments[keep - 1]
        check_seek(segments, last, offset)
        return keep, last.end_before(offset)

    def _state_after(self, truncation: Truncation) -> TruncatedState:
        """Return the producers' state after a truncation. Raises `NotReady` and `CorruptLog`."""
        state, self._truncated = self._truncated, None
        if state is None or state.truncation != truncation:
            raise NotReady(
                TruncationJob(truncation, self.segments, self.snapshots, self._note_truncated)
            )
        if state.error is not None:
            raise state.error
        return state

    def _note_truncated(self, state: TruncatedState) -> None:
        self._truncated = state

    def _cut(self, keep: int, end: int, last: Segment | None) -> None:
        """Remove the records from offset `end` on; see `SegmentList.cut`."""
        segments = self.segments
        # Jobs in threads that began before it must not report the removed bytes as durable or
        # checked.
        segments.generation += 1
        self.log_start_offset = min(self.log_start_offset, end)
        # The recovery point goes back durably before anything is cut off: after a crash in between,
        # a start would otherwise miss records below it and take the log offline.
        if self.flushes.truncate_to(end) and self.before_truncate is not None:
            self.before_truncate(end)
        if last is not None:
            segments.cut(keep, last)
        else:
            segments.restart_at(end, self.config)
        self.log_end_offset = end
        assert segments.active.next_offset == end
        self.leader_epochs.truncate_from_end(end)
        self.snapshots.remove_beyond(end)

    def restart_at(self, offset: int) -> None:
        """Delete all records, and begin at `offset`: the log of a follower that is too far behind.

        Raises `OSError`.
        """
        if self.flushes.truncate_to(0) and self.before_truncate is not None:
            self.before_truncate(offset)
        self.segments.generation += 1
        self.segments.restart_at(offset, self.config)
        self.log_start_offset = self.log_end_offset = offset
        self.leader_epochs.truncate_from_end(0)
        self.snapshots.remove_beyond(-1)
        # Producers of the old records are unknown here from now on. Their next batches come with
        # the leader's log, which begins with no history before `offset`.
        self.producers.load({})
        self.producers.end_offset = offset

    def rebuild_producers(self, reindexed: Sequence[Segment] = ()) -> None:
        """Make the producers' state from the newest snapshot and the log after it.

        The transaction indexes of `reindexed` segments are rebuilt on the way. Raises `CorruptLog`
        or `OSError`.
        """
        rebuild(self.producers, self.snapshots, self.segments, self.log_end_offset, reindexed)

    def replace_segments(self, old: Sequence[Segment], new: Segment, due_ms: int) -> None:
        """Replace a run of sealed segments by a compacted one. Raises as `SegmentList.replace`.

        due_ms: removal of the old files, milliseconds since the epoch.
        """
        self.segments.replace(old, new, due_ms)
        for segment in old[1:]:
            self.snapshots.remove_at(segment.base_offset)
