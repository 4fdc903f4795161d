"""How dirty a log is, and which of its segments a compaction may clean.

A compaction does not clean the active segment, records above the last stable offset, records that
are not durable yet, and segments younger than `min.compaction.lag.ms`. The loop decides this from
memory and from batch headers. The cleaner selects among the examined logs (`server/upkeep`).

Source: `LogCleanerManager.cleanableOffsets` and `LogToClean` of Apache Kafka.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakelog.storage.compaction.job import CompactionJob, LastRecord, Source
from lakelog.storage.files import LOG
from lakelog.storage.log import Log
from lakelog.storage.retention import last_time
from lakelog.storage.segments.segment import Segment


@dataclass(frozen=True, slots=True)
class CleanerLimits:
    """One helper's share of the settings `log.cleaner.*`.

    Sizes are in bytes; a `bytes_per_second` of 0 is no limit.
    """

    map_bytes: int
    map_load_factor: float
    read_bytes: int
    bytes_per_second: float


@dataclass(frozen=True, slots=True)
class CleanableLog:
    """The part of a log that a compaction may clean.

    clean_bytes: segments that earlier compactions cleaned. cleanable_bytes: segments from
    `first_dirty_offset` to `first_uncleanable_offset`, which is the base offset of a segment.
    """

    log: Log
    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    is_overdue: bool
    """Whether `max.compaction.lag.ms` requires a cleaning at any ratio."""

    @property
    def ratio(self) -> float:
        """The share of dirty bytes in the log, 0 to 1 (`min.cleanable.dirty.ratio`)."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    @property
    def is_due(self) -> bool:
        """Whether the log has to be compacted now."""
        if self.is_overdue and self.cleanable_bytes:
            return True
        return self.ratio > self.log.config.min_cleanable_dirty_ratio


def examine(
    log: Log, cleaned_offset: int | None, now_ms: int, last_stable_offset: int
) -> CleanableLog:
    """Return how much of a log is dirty and may be cleaned.

    cleaned_offset: the end of the last compaction, ignored if it is outside the log. Raises
    `NotReady` if a thread must first load an index, `CorruptLog` and `OSError`.
    """
    start, segments = log.log_start_offset, log.segments
    dirty = start
    if cleaned_offset is not None and start <= cleaned_offset <= log.log_end_offset:
        # After a truncation or a deletion the checkpoint may name an offset outside the log.
        dirty = cleaned_offset
    active = log.segments.active.base_offset
    young = _first_young(log, dirty, now_ms)
    # A record that a power failure may still remove must not replace an older one of its key.
    stable = min(last_stable_offset, log.durable_stable_offset)
    limit = min(stable, active if young is None else young)
    uncleanable = segments[segments.number_of(max(dirty, limit))].base_offset
    # The dirty offset may lie within a segment, which is then rewritten as a whole.
    first = segments[segments.number_of(min(dirty, uncleanable))].base_offset
    assert first <= uncleanable <= active
    return CleanableLog(
        log,
        dirty,
        uncleanable,
        sum(segment.size for segment in segments if segment.base_offset < dirty),
        sum(segment.size for segment in segments if first <= segment.base_offset < uncleanable),
        _is_overdue(log, dirty, now_ms),
    )


def make_job(cleanable: CleanableLog, now_ms: int, limits: CleanerLimits) -> CompactionJob:
    """Return the job for a helper. Raises `OSError`."""
    log, config = cleanable.log, cleanable.log.config
    sources = _sources(log)
    end = cleanable.first_uncleanable_offset
    return CompactionJob(
        folder=log.folder,
        segments=tuple(source for source in sources if source.base_offset < end),
        later=tuple(source for source in sources if source.base_offset >= end),
        first_dirty_offset=cleanable.first_dirty_offset,
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        producers={
            producer_id: LastRecord(
                entry.batches[-1].last_offset if entry.batches else -1, entry.epoch
            )
            for producer_id, entry in log.producers.entries.items()
        },
        map_bytes=limits.map_bytes,
        map_load_factor=limits.map_load_factor,
        read_bytes=limits.read_bytes,
        bytes_per_second=limits.bytes_per_second,
    )


def _sources(log: Log) -> list[Source]:
    ends = [segment.base_offset for segment in log.segments[1:]]
    disk = log.segments.disk
    return [
        Source(segment.base_offset, end, segment.size, disk.modified_ms(segment.path(LOG)))
        for segment, end in zip(log.segments, [*ends, log.log_end_offset], strict=True)
    ]


def _dirty_sealed(log: Log, dirty: int) -> list[Segment]:
    return log.segments[log.segments.number_of(dirty) : -1]


def _first_young(log: Log, dirty: int, now_ms: int) -> int | None:
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms <= 0:
        return None
    for segment in _dirty_sealed(log, dirty):
        if last_time(log.segments, segment, now_ms) > now_ms - lag_ms:
            return segment.base_offset
    return None


def _is_overdue(log: Log, dirty: int, now_ms: int) -> bool:
    """Return whether a dirty segment began more than `max.compaction.lag.ms` ago."""
    until = now_ms - log.config.max_compaction_lag_ms
    if until <= 0:
        return False
    return any(0 < _first_time(segment, now_ms) < until for segment in _dirty_sealed(log, dirty))


def _first_time(segment: Segment, now_ms: int) -> int:
    """Return the greatest timestamp (ms) of a segment's first batch; -1 without one.

    The file's own time replaces a timestamp in the future, which would never get old.
    """
    first_ms = segment.first_time()
    return first_ms if first_ms <= now_ms else segment.disk.modified_ms(segment.path(LOG))
