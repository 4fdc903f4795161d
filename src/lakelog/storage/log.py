"""One partition's log: an append-only sequence of batches in segments.

`log_start_offset` and `log_end_offset` never go back but by `truncate_to`. A failed append leaves
no trace: every piece of state moves after the write.

Source: `UnifiedLog` of `org.apache.kafka.storage.internals.log`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from lakelog.base.config.keys.topics import FSYNC
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.shortage import is_shortage
from lakelog.records.batch import (
    BatchHeader,
    patch_offset_and_epoch,
    read_header,
    set_append_time,
)
from lakelog.records.control import EndTransactionMarker, build_marker
from lakelog.storage.preparation import wait_for
from lakelog.storage.producers.state import BatchMetadata
from lakelog.storage.producers.verification import Verification
from lakelog.storage.reading.aborted_check import aborted_in
from lakelog.storage.run import RELATIVE_OFFSET_MAX, place_run
from lakelog.storage.segments.segment import Segment
from lakelog.storage.trimmable_log import TrimmableLog
from lakelog.storage.validation.batches import Origin, check_first, check_incoming


class AppendResult(NamedTuple):
    """Where a batch went. A duplicate went there before; nothing was written."""

    base_offset: int
    last_offset: int
    append_time_ms: int
    """-1 unless the topic's timestamps are the broker's."""
    log_start_offset: int
    duplicate: bool


class Log(TrimmableLog):
    """See the module. Offsets are of records, sizes in bytes, times in milliseconds."""

    __slots__ = ()

    def assign_epoch(self, leader_epoch: int) -> None:
        """Called when this broker becomes the leader: the epoch begins at the log's end."""
        self.leader_epochs.assign(leader_epoch, self.log_end_offset)

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
        """Appends exactly one writable batch, after giving it its offset and leader epoch.

        `verification` is what `producers.start_verification` gave before the transaction's
        coordinator was asked, for a batch that begins a transaction here. A `sampled` batch has its
        records verified unless the topic wants none to be.

        Raises `KafkaError` with nothing done: 2 checksum, 10 too large, 18 larger than a segment,
        32 timestamp, 45 sequence gap, 47 producer epoch, 48 transaction, 87 anything else. An
        `OSError` leaves the log as it was, and a batch that may be tried again.
        """
        config = self._config
        fields = check_incoming(batch, config, now_ms, origin, sampled=sampled)
        entry, header, append_time, timestamp = None, None, -1, fields[8]
        if fields[9] >= 0:
            entry = self.producers.expecting(fields)
            if entry is None:
                header = BatchHeader(*fields)
                if not sampled and origin == "client" and fields[9] not in self.producers.entries:
                    check_first(batch, header, config, now_ms)
                duplicate = self.producers.admit(header, origin, verification)
                if duplicate is not None:
                    return self._repeated(duplicate)
        if config.message_timestamp_type != "CreateTime":
            append_time = timestamp = now_ms
            header = header or BatchHeader(*fields)
            set_append_time(batch, 0, header, now_ms)
        base = self.log_end_offset
        last = base + fields[6]
        patch_offset_and_epoch(batch, 0, base, leader_epoch)
        try:
            self._write(batch, base, last, timestamp, leader_epoch, now_ms)
        except OSError as error:
            patch_offset_and_epoch(batch, 0, 0, leader_epoch)
            self.broken |= not is_shortage(error)
            raise
        self.log_end_offset = self.producers.end_offset = last + 1
        if entry is not None:
            entry.add(fields[11], fields[6], last, timestamp)
        elif fields[9] >= 0:
            assert header is not None
            self.producers.update(header, base)
        return AppendResult(base, last, append_time, self.log_start_offset, False)

    def append_run(
        self, batches: Sequence[memoryview], *, leader_epoch: int, now_ms: int
    ) -> list[int]:
        """Appends as many of a client's batches as can be with one write; their base offsets.

        There are none if the first one needs `append`, as the first after a start does. Raises as
        that does, because of the first.
        """
        segment, end = self.active_segment, self.log_end_offset
        if (
            not self.takes_runs
            or segment.loaded_index is None
            or segment.full
            or leader_epoch > self.leader_epochs.latest
        ):
            return []
        if len(batches) > 1 or segment.loaded_index is None:  # for one `full` tells
            batches = batches[: segment.index_room]
        headers, offsets, producer = place_run(self, batches, leader_epoch, now_ms)
        if not headers:
            return []
        batches, position = batches[: len(headers)], segment.size
        try:
            segment.append_run(batches, headers)
        except OSError as error:
            for batch in batches:
                patch_offset_and_epoch(batch, 0, 0, leader_epoch)
            self.broken |= not is_shortage(error)
            raise
        if producer is not None:
            producer.add_run(headers, end)
        self.log_end_offset = self.producers.end_offset = segment.next_offset
        self._known.note(end, (segment, position, len(batches[0])))
        return offsets

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        marker: EndTransactionMarker,
        *,
        leader_epoch: int,
        now_ms: int,
        transaction_version: int,
    ) -> int:
        """Ends a producer's transaction, if it has one here; the marker's offset.

        Raises `KafkaError` with nothing done: 47 producer epoch, 52 coordinator epoch. An
        `OSError` leaves the log as it was.
        """
        self.producers.check_marker(
            producer_id, producer_epoch, marker.coordinator_epoch, transaction_version
        )
        batch = build_marker(producer_id, producer_epoch, marker, now_ms)
        header = read_header(batch)
        if self.config.message_timestamp_type != "CreateTime":
            set_append_time(batch, 0, header, now_ms)
        offset = self.log_end_offset
        try:
            if not marker.commit:
                wait_for(partial(aborted_in, self, self.active_segment))
            if self._must_roll(self.active_segment, len(batch), offset, now_ms, now_ms):
                self.roll(now_ms)
            self._write_marker(batch, header, marker, leader_epoch)
        except OSError as error:
            self.broken |= not is_shortage(error)
            raise
        self.log_end_offset = self.producers.end_offset = offset + 1
        return offset

    def _write_marker(
        self,
        batch: bytearray,
        header: BatchHeader,
        marker: EndTransactionMarker,
        leader_epoch: int,
    ) -> None:
        """The index comes first: an aborted transaction that is not in it would be read."""
        offset, segment = self.log_end_offset, self.active_segment
        patch_offset_and_epoch(batch, 0, offset, leader_epoch)
        aborted = None if marker.commit else self.producers.ending(header.producer_id, offset)
        if aborted is not None:
            segment.write_aborted(aborted)
        try:
            now_ms = header.max_timestamp
            self._write(batch, offset, offset, now_ms, leader_epoch, now_ms)
        except OSError:
            with suppress(OSError):
                segment.cut_aborted()
            raise
        by_flush = self._config.durability == FSYNC
        self.producers.end_transaction(header, marker, uncommitted_at=offset if by_flush else -1)
        if aborted is not None:
            segment.keep_aborted(aborted)
            self.has_aborted = True

    def _write(
        self,
        batch: bytearray | memoryview,
        base: int,
        last: int,
        timestamp: int,
        leader_epoch: int,
        now_ms: int,
    ) -> None:
        segment, config, size = self.active_segment, self._config, len(batch)
        if (
            timestamp >= segment.roll_after
            or segment.full
            or segment.size + size > config.segment_bytes
            or last - segment.base_offset > RELATIVE_OFFSET_MAX
        ) and self._must_roll(segment, size, last, timestamp, now_ms):
            segment = self.roll(now_ms)
        if leader_epoch > self.leader_epochs.latest:
            self.leader_epochs.assign(leader_epoch, base)
        position = segment.size
        segment.append(batch, last, timestamp)
        self._known.note(base, (segment, position, size))

    def _repeated(self, batch: BatchMetadata) -> AppendResult:
        by_broker = self.config.message_timestamp_type == "LogAppendTime"
        append_time = batch.timestamp if by_broker else -1
        start = self.log_start_offset
        return AppendResult(batch.first_offset, batch.last_offset, append_time, start, True)

    def _must_roll(
        self, segment: Segment, size: int, last: int, timestamp: int, now_ms: int
    ) -> bool:
        config = self._config
        if size > config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"a batch of {size} bytes; segment.bytes is {config.segment_bytes}",
            )
        return (
            segment.full
            or segment.size + size > config.segment_bytes
            or last - segment.base_offset > RELATIVE_OFFSET_MAX
            or segment.is_due(timestamp, now_ms, config.segment_ms - segment.jitter_ms)
        )
