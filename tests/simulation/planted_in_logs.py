"""Bugs in how records are kept: appends, flushes, recovery, compaction, retention."""

from __future__ import annotations

from typing import Any

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.store.sqlite import SqliteLog
from lakelog.replica.partition import Partition
from lakelog.replica.role import Role
from lakelog.replica.watermark import HighWatermark
from lakelog.server.upkeep.maintenance import Maintenance
from lakelog.storage import loader, recovery, retention
from lakelog.storage.compaction import clean, records
from lakelog.storage.epochs import EpochCache
from lakelog.storage.files import LOG
from lakelog.storage.flush import FlushJob
from lakelog.storage.folder.directory import LogDirectory
from lakelog.storage.log import AppendResult, Log
from lakelog.storage.segments import checking
from lakelog.storage.segments.segment_list import SegmentList
from simulation.planted_bug import FLIP, bug
from simulator.checkers.laws import Law

_EPOCH_POSITION = 12
_FLUSHED = {"log.flush.interval.messages": "1"}
_NOW_AND_THEN = {"log.flush.interval.ms": "500"}
_BY_FLUSH = {"log.durability": "fsync"}


@bug("an fsync is left out", Law.PROMISED_END, "idempotent", faults=("power",), settings=_FLUSHED)
def _no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(self: FlushJob) -> None:
        self.done = True

    monkeypatch.setattr(FlushJob, "run", run)


@bug("acknowledged though the disk is full", Law.ONE_VALUE, "plain", faults=("disk full",))
def _acknowledged_unwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    append = Partition.append

    def pretending(self: Partition, *arguments: Any, **named: Any) -> AppendResult:
        end = self.log.log_end_offset
        try:
            return append(self, *arguments, **named)
        except KafkaError as error:
            if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
                raise
            return AppendResult(end, end, -1, 0, False)

    monkeypatch.setattr(Partition, "append", pretending)


@bug("the high watermark runs ahead of the end", Law.ORDER, "plain")
def _watermark_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    advance = HighWatermark.advance

    def ahead(self: HighWatermark) -> bool:
        rose = advance(self)
        self.offset += rose
        return rose

    monkeypatch.setattr(HighWatermark, "advance", ahead)


@bug(
    "a flush sets the high watermark back",
    Law.FORWARD,
    "plain",
    settings=_NOW_AND_THEN,
)
def _watermark_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def note_flush(self: Partition) -> None:
        self.watermark.offset = self.log.recovery_point - 1

    monkeypatch.setattr(Partition, "note_flush", note_flush)


@bug("a start keeps the leader epoch", Law.EPOCH_RISES, "plain", faults=("stop",))
def _epoch_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assume = Partition.assume

    def assume_known(self: Partition, role: Role, *rest: Any) -> None:
        known = max(self.log.leader_epochs.latest, 0)
        self.leader_epoch = known
        assume(self, role._replace(leader_epoch=known), *rest)

    monkeypatch.setattr(Partition, "assume", assume_known)


@bug("cut to the checkpointed high watermark", Law.KEPT, "plain", faults=("kill",))
def _cut_to_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    load_logs = LogDirectory.load_logs

    def cutting(self: LogDirectory, *arguments: Any) -> Any:
        logs = load_logs(self, *arguments)
        for key, log in logs.items():
            if not self.clean:
                log.truncate_to(self.high_watermarks.get(key, 0))
        return logs

    monkeypatch.setattr(LogDirectory, "load_logs", cutting)


@bug("a start forgets the newest batch", Law.END_KEPT, "plain", faults=("kill", "stop"))
def _newest_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    load_logs = LogDirectory.load_logs

    def shorter(self: LogDirectory, *arguments: Any) -> Any:
        logs = load_logs(self, *arguments)
        for log in logs.values():
            if log.log_end_offset > log.log_start_offset:
                log.truncate_to(log.log_end_offset - 1)
        return logs

    monkeypatch.setattr(LogDirectory, "load_logs", shorter)


@bug("recovery writes into batches that are there", Law.SAME_BYTES, "plain", faults=("kill",))
def _stamped_again(monkeypatch: pytest.MonkeyPatch) -> None:
    recover = recovery.recover_segment

    def stamping(segment: Any, *rest: Any, **named: Any) -> Any:
        cut = recover(segment, *rest, **named)
        if segment.size:
            file = segment.disk.open(segment.path(LOG))
            file.write_at(_EPOCH_POSITION, b"\0\0\0\0")
            file.close()
        return cut

    monkeypatch.setattr(loader, "recover_segment", stamping)


@bug("damaged batches are served", Law.INTACT, "idempotent", faults=("stop", FLIP))
def _damage_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "check_crc", lambda *arguments: True)


@bug("recovery takes no heed of checksums", Law.DAMAGE_ENDS, "idempotent", faults=("kill", FLIP))
def _damage_recovered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "check_crc", lambda *arguments: True)


@bug(
    "damage below the recovery point is treated as a torn tail",
    Law.PROMISED_END,
    "idempotent",
    faults=("kill", "stop", FLIP),
    seeds=20,
)
def _corrupt_for_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    recover = recovery.recover_segment

    def from_nothing(segment: Any, recovery_point: int, *rest: Any, **named: Any) -> Any:
        return recover(segment, 0, *rest, **named)

    monkeypatch.setattr(loader, "recover_segment", from_nothing)
    monkeypatch.setattr(loader.LogLoader, "_check_end", lambda *arguments: None)


@bug(
    "metadata is not synced",
    Law.STARTS,
    "administration",
    faults=("power",),
    seeds=20,
    report="cannot be started any more",
)
def _metadata_unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = SqliteLog._connect

    def hasty(self: SqliteLog) -> Any:
        connection = connect(self)
        connection.execute("PRAGMA synchronous = OFF")
        return connection

    monkeypatch.setattr(SqliteLog, "_connect", hasty)


@bug("retention takes every closed segment for old", Law.START_KEPT, "plain", "idempotent")
def _all_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "last_time", lambda segments, segment, now_ms: 0)


@bug("DeleteRecords stops where a segment begins", Law.TRIMMED, "administration")
def _trimmed_by_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    delete_records = Partition.delete_records

    def to_segment(self: Partition, before: int, **named: Any) -> int:
        bases = [each.base_offset for each in self.log.segments]
        at = max(base for base in [0, *bases] if base <= before)
        return delete_records(self, at, **named)

    monkeypatch.setattr(Partition, "delete_records", to_segment)


@bug(
    "DeleteRecords is answered before it is durable",
    Law.STAYS_TRIMMED,
    "administration",
    faults=("kill", "power"),
)
def _trimmed_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(self: Maintenance, *, from_reserve: bool = False) -> bool:
        return True

    monkeypatch.setattr(Maintenance, "checkpointed", at_once)


@bug("compaction drops the newest value of a key", Law.KEYS_KEPT, "compaction")
def _newest_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    note_keys = records.note_keys

    def beyond(data: bytes, count: int, base: int, start: int, offsets: dict[bytes, int]) -> None:
        before = dict(offsets)
        note_keys(data, count, base, start, offsets)
        for key, offset in offsets.items():
            if before.get(key) != offset:
                offsets[key] = offset + 1

    monkeypatch.setattr(clean, "note_keys", beyond)


# Reading


@bug("a fetch is answered from another partition", Law.WRITTEN, "idempotent")
def _from_another(monkeypatch: pytest.MonkeyPatch) -> None:
    assume, read = Partition.assume, Partition.read
    first: dict[str, Partition] = {}

    def noting(self: Partition, role: Role, *rest: Any) -> None:
        assume(self, role, *rest)
        if self.index == 0:
            first[self.topic] = self

    def confused(self: Partition, offset: int, max_bytes: int, **named: Any) -> Any:
        other = first.get(self.topic, self)
        is_there = other.log.log_start_offset <= offset < other.watermark.offset
        return read(other if is_there else self, offset, max_bytes, **named)

    monkeypatch.setattr(Partition, "assume", noting)
    monkeypatch.setattr(Partition, "read", confused)


@bug("a fetch begins an offset late", Law.ADJACENT, "idempotent")
def _an_offset_late(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Log.read

    def late(self: Log, offset: int, max_bytes: int, **named: Any) -> Any:
        return read(self, min(offset + 1, self.log_end_offset), max_bytes, **named)

    monkeypatch.setattr(Log, "read", late)


@bug("a fetch reaches to the end of the log", Law.BELOW_WATERMARK, "plain", settings=_BY_FLUSH)
def _beyond_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Partition.read

    def further(self: Partition, offset: int, max_bytes: int, **named: Any) -> Any:
        return read(self, offset, max_bytes, **{"end": self.log.log_end_offset, **named})

    monkeypatch.setattr(Partition, "read", further)


@bug("the first batch of a segment is passed over", Law.READABLE, "plain")
def _first_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Log.read

    def read_on(self: Log, offset: int, max_bytes: int, **named: Any) -> Any:
        if any(offset == segment.base_offset for segment in self.segments[1:]):
            return None
        return read(self, offset, max_bytes, **named)

    monkeypatch.setattr(Log, "read", read_on)


@bug("the end of a log is out of range", Law.OUT_OF_RANGE, "plain")
def _end_out_of_range(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Log.read

    def strict(self: Log, offset: int, max_bytes: int, **named: Any) -> Any:
        if offset == self.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        return read(self, offset, max_bytes, **named)

    monkeypatch.setattr(Log, "read", strict)


@bug("a lookup by time finds the record after", Law.AT_TIME, "plain", "idempotent")
def _record_after(monkeypatch: pytest.MonkeyPatch) -> None:
    at_time = Partition.at_time

    def after(self: Partition, timestamp_ms: int | None) -> Any:
        found = yield from at_time(self, timestamp_ms)
        return found and found._replace(offset=found.offset + 1)

    monkeypatch.setattr(Partition, "at_time", after)


@bug("every epoch ends with the log", Law.EPOCH_END, "plain", "idempotent", faults=("stop",))
def _ends_with_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    end_offset = EpochCache.end_offset

    def log_end(self: EpochCache, epoch: int, log_end_offset: int) -> tuple[int, int]:
        found, end = end_offset(self, epoch, log_end_offset)
        return found, max(end, log_end_offset)

    monkeypatch.setattr(EpochCache, "end_offset", log_end)


@bug("retention takes a segment too many", Law.RETAINED, "retention", seeds=20)
def _segment_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    leading = retention._leading

    def one_more(segments: SegmentList, *arguments: Any) -> int:
        count = leading(segments, *arguments)
        return min(count + 1, len(segments) - 1) if count else count

    monkeypatch.setattr(retention, "_leading", one_more)


@bug(
    "a tombstone goes with the next cleaning",
    Law.TOMBSTONE_KEPT,
    "compaction",
    faults=("stop",),
    seeds=20,
    seconds=30.0,
)
def _tombstone_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clean._Cleaning, "_new_horizon", lambda self: self._job.now_ms)


@bug(
    "a tombstone is removed before the records that it deletes",
    Law.DELETED,
    "compaction",
    faults=("stop",),
    seeds=20,
    seconds=30.0,
)
def _goes_before(monkeypatch: pytest.MonkeyPatch) -> None:
    note_keys = records.note_keys

    def oldest(data: bytes, count: int, base: int, start: int, offsets: dict[bytes, int]) -> None:
        before = dict(offsets)
        note_keys(data, count, base, start, offsets)
        offsets.update(before)

    monkeypatch.setattr(clean, "note_keys", oldest)
    monkeypatch.setattr(clean._Cleaning, "_new_horizon", lambda self: self._job.now_ms)
