"""Which of the oldest segments may go.

Source: `UnifiedLog.deleteOldSegments` of `org.apache.kafka.storage.internals.log`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from lakelog.storage.names import LOG
from lakelog.storage.reading.seeking import check_greatest

if TYPE_CHECKING:
    from lakelog.storage.local_log import LocalLog
    from lakelog.storage.segments.segment import Segment


def count_deletable(log: LocalLog, now_ms: int, high_watermark: int) -> int:
    """How many segments from the oldest on are expired, surplus or below the log's start.

    Raises `NotReady` if an index has to be loaded first.
    """
    config, segments = log.config, log.segments
    count = _leading(log, high_watermark, 0, lambda segment, end: end <= log.log_start_offset)
    if "delete" not in config.cleanup_policy:
        return min(count, len(segments) - 1)
    if config.retention_bytes >= 0:
        surplus = log.size - sum(segment.size for segment in segments[:count])
        surplus -= config.retention_bytes

        def is_surplus(segment: Segment, end: int) -> bool:
            nonlocal surplus
            surplus -= segment.size
            return surplus >= 0

        count = _leading(log, high_watermark, count, is_surplus)
    if config.retention_ms >= 0:
        count = _leading(
            log,
            high_watermark,
            count,
            lambda segment, end: now_ms - last_time(log, segment, now_ms) > config.retention_ms,
        )
    return count


def last_time(log: LocalLog, segment: Segment, now_ms: int) -> int:
    """When the newest record was written, as far as can be told.

    The file's own time stands in for records without a timestamp and for one in the future, which
    would otherwise keep the log for ever (KAFKA-18929). Raises `NotReady` as `check_greatest`.
    """
    check_greatest(log, segment)
    timestamp = segment.max_timestamp
    if 0 <= timestamp <= now_ms:
        return timestamp
    return segment.disk.modified_ms(segment.path(LOG))


def _leading(
    log: LocalLog, high_watermark: int, start: int, test: Callable[[Segment, int], bool]
) -> int:
    """The number of leading segments, from `start` on, that pass and are wholly committed."""
    segments = log.segments
    for number in range(start, len(segments)):
        segment = segments[number]
        is_last = number + 1 == len(segments)
        end = log.log_end_offset if is_last else segments[number + 1].base_offset
        empty_last = is_last and segment.size == 0
        if empty_last or high_watermark < end or not test(segment, end):
            return number
    return len(segments)
