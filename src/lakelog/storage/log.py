"""One partition's log: an append-only sequence of batches in segments.

The log has one owner and is never called from two threads; only `FlushJob.run` leaves the loop.
`log_start_offset` and `log_end_offset` never go back but by `truncate_to`. A failed append leaves
no trace: every piece of state moves after the write.

Source: `UnifiedLog` and `LocalLog` of `org.apache.kafka.storage.internals.log`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.topic_config import LogConfig
from lakelog.records.batch import BatchHeader, patch_offset_and_epoch, set_append_time
from lakelog.storage.epochs import EpochCache
from lakelog.storage.handles import HandleCache, LogSlice
from lakelog.storage.producer_state import BatchMetadata, ProducerStateTable
from lakelog.storage.segment import Segment
from lakelog.storage.validate import Origin, check_batch, read_batch

_RELATIVE_MAX = 0x7FFFFFFF
_RECENT_MAX = 128
PRODUCER_EXPIRATION_MS = 86_400_000


class AppendResult(NamedTuple):
    """Where a batch went. A duplicate went there before; nothing was written."""

    base_offset: int
    last_offset: int
    append_time_ms: int
    """-1 unless the topic's timestamps are the broker's."""
    log_start_offset: int
    duplicate: bool


class Log:
    """See the module. Offsets are of records, sizes in bytes, times in milliseconds."""

    __slots__ = (
        "_bases",
        "_older",
        "_random_below",
        "_recent",
        "active_segment",
        "config",
        "folder",
        "handles",
        "leader_epochs",
        "log_end_offset",
        "log_start_offset",
        "partition",
        "producers",
        "recovery_point",
        "segments",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        topic_id: bytes,
        config: LogConfig,
        folder: Path,
        handles: HandleCache,
        segments: list[Segment],
        *,
        random_below: Callable[[int], int],
        log_start_offset: int = 0,
        recovery_point: int = 0,
        leader_epochs: EpochCache | None = None,
        producers: ProducerStateTable | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.config = config
        self.folder = folder
        self.handles = handles
        self.segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self.active_segment = segments[-1]
        self.log_start_offset = log_start_offset
        self.log_end_offset = self.active_segment.next_offset
        self.recovery_point = recovery_point
        """Everything before it is on the device."""
        self.leader_epochs = leader_epochs if leader_epochs is not None else EpochCache()
        self.producers = (
            producers if producers is not None else ProducerStateTable(PRODUCER_EXPIRATION_MS)
        )
        self._random_below = random_below
        self._recent: dict[int, int] = {}
        self._older: dict[int, int] = {}

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

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
    ) -> AppendResult:
        """Appends exactly one writable batch, after giving it its offset and leader epoch.

        Raises `KafkaError` with nothing done: 2 checksum, 10 too large, 18 larger than a segment,
        32 timestamp, 45 sequence gap, 47 producer epoch, 87 anything else. An `OSError` leaves
        the log as it was.
        """
        config = self.config
        header = read_batch(batch, config)
        if origin == "client":
            check_batch(batch, header, config, now_ms)
        if header.producer_id >= 0:
            duplicate = self.producers.find_duplicate(header)
            if duplicate is not None:
                return self._repeated(duplicate)
            self.producers.check(header)
        append_time = -1
        if config.message_timestamp_type == "LogAppendTime":
            append_time = now_ms
            set_append_time(batch, 0, header, now_ms)
        base = self.log_end_offset
        last = base + header.last_offset_delta
        patch_offset_and_epoch(batch, 0, base, leader_epoch)
        if leader_epoch > self.leader_epochs.latest:
            self.leader_epochs.assign(leader_epoch, base)
        self._write(batch, header, base, last, now_ms)
        return AppendResult(base, last, append_time, self.log_start_offset, False)

    def _write(
        self, batch: bytearray | memoryview, header: BatchHeader, base: int, last: int, now_ms: int
    ) -> None:
        segment = self.active_segment
        size, timestamp = len(batch), header.max_timestamp
        if self._must_roll(segment, size, last, timestamp, now_ms):
            segment = self.roll(now_ms)
        position = segment.size
        segment.append(batch, last, timestamp)
        recent = self._recent
        if len(recent) >= _RECENT_MAX:
            self._older = recent
            recent = self._recent = {}
        recent[base] = position
        self.log_end_offset = last + 1
        if header.producer_id >= 0:
            self.producers.update(header, base)
        self.producers.end_offset = last + 1

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
            segment.size > config.segment_bytes - size
            or last - segment.base_offset > _RELATIVE_MAX
            or (
                segment.size > 0
                and segment.age_ms(timestamp, now_ms) > config.segment_ms - segment.jitter_ms
            )
            or segment.is_full(config.segment_index_bytes)
        )

    def roll(self, now_ms: int) -> Segment:
        """Seals the active segment and begins the next one at the log's end."""
        config = self.config
        old, base = self.active_segment, self.log_end_offset
        if old.size == 0 and old.base_offset == base:
            return old
        old.seal()
        jitter = min(config.segment_jitter_ms, config.segment_ms)
        segment = Segment.create(
            self.handles,
            self.folder,
            base,
            interval=config.index_interval_bytes,
            created_ms=now_ms,
            jitter_ms=self._random_below(jitter) if jitter > 0 else 0,
        )
        self.segments.append(segment)
        self._bases.append(base)
        self.active_segment = segment
        self._recent, self._older = {}, {}
        return segment

    # Reading

    def read(
        self, offset: int, max_bytes: int, *, end_offset: int, min_one: bool = True
    ) -> LogSlice | None:
        """Whole batches from the one that holds `offset` on, none reaching to `end_offset`.

        At most `max_bytes`; with `min_one` the first batch even if it is larger. `None` when there
        is nothing. Raises `KafkaError` 1 outside the log.
        """
        end = self.log_end_offset
        if not self.log_start_offset <= offset <= end:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is outside {self.log_start_offset} to {end}",
            )
        if offset >= end_offset or offset == end:
            return None
        segment = self.active_segment
        if offset < segment.base_offset:
            return self._read_older(offset, max_bytes, end_offset, min_one)
        position = self._position(offset)
        limit = segment.size if end_offset >= end else self._position(end_offset)
        return _slice(segment, position, limit, max_bytes, min_one)

    def _position(self, offset: int) -> int:
        """`Segment.position_of` in the active segment, quick at the tail."""
        position = self._recent.get(offset)
        if position is None:
            position = self._older.get(offset)
            if position is None:
                position = self.active_segment.position_of(offset)
        return position

    def _read_older(
        self, offset: int, max_bytes: int, end_offset: int, min_one: bool
    ) -> LogSlice | None:
        number = bisect_right(self._bases, offset) - 1
        for segment in self.segments[max(number, 0) :]:
            position = segment.position_of(offset)
            if position < segment.size:
                bounded = end_offset < segment.next_offset
                limit = segment.position_of(end_offset) if bounded else segment.size
                return _slice(segment, position, limit, max_bytes, min_one)
        return None


def _slice(
    segment: Segment, position: int, limit: int, max_bytes: int, min_one: bool
) -> LogSlice | None:
    size = limit - position
    if size > max_bytes:
        size = segment.whole_batches(position, limit, max_bytes)
        if size > max_bytes and not min_one:
            return None
    return LogSlice(segment.open(), position, size) if size > 0 else None
