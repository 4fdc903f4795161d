"""Which of the oldest segments may be deleted.

Source: `UnifiedLog.deleteOldSegments` of `org.apache.kafka.storage.internals.log`.
"""

from __future__ import annotations

from collections.abc import Callable

from lakelog.base.config.log_config import LogConfig
from lakelog.storage.files import LOG
from lakelog.storage.reading.seeking import check_greatest
from lakelog.storage.segments.segment import Segment
from lakelog.storage.segments.segment_list import SegmentList


def count_deletable(
    segments: SegmentList, config: LogConfig, now_ms: int, start: int, end: int, committed: int
) -> int:
    """Return how many segments from the oldest on are expired, surplus or before the log's start.

    The log's offsets are from `start` up to `end`, exclusive; nothing at or beyond the offset
    `committed` is deletable. The count includes the active segment if all of it has expired. Raises
    `NotReady` if an index has to be loaded first.
    """
    assert start <= end

    def leading(first: int, test: Callable[[Segment, int], bool]) -> int:
        return _leading(segments, end, committed, first, test)

    count = leading(0, lambda segment, segment_end: segment_end <= start)
    if "delete" not in config.cleanup_policy:
        return min(count, len(segments) - 1)
    if config.retention_bytes >= 0:
        surplus = sum(segment.size for segment in segments[count:]) - config.retention_bytes

        def is_surplus(segment: Segment, segment_end: int) -> bool:
            nonlocal surplus
            surplus -= segment.size
            return surplus >= 0

        count = leading(count, is_surplus)
    if config.retention_ms >= 0:
        count = leading(
            count,
            lambda segment, segment_end: (
                now_ms - last_time(segments, segment, now_ms) > config.retention_ms
            ),
        )
    return count


def last_time(segments: SegmentList, segment: Segment, now_ms: int) -> int:
    """Return when the newest record was written (ms), as far as is known.

    The file's own time stands in for records without a timestamp and for one in the future, which
    would otherwise keep the log for ever (KAFKA-18929). Raises `NotReady` as `check_greatest`.
    """
    check_greatest(segments, segment)
    timestamp = segment.max_timestamp
    if 0 <= timestamp <= now_ms:
        return timestamp
    return segment.disk.modified_ms(segment.path(LOG))


def _leading(
    segments: SegmentList,
    end: int,
    committed: int,
    first: int,
    test: Callable[[Segment, int], bool],
) -> int:
    """Return the number of the first segment, from `first` on, that fails or is not all committed.

    `test` is asked for a segment and where it ends; the active one ends at `end`.
    """
    for number in range(first, len(segments)):
        segment = segments[number]
        is_last = number + 1 == len(segments)
        segment_end = end if is_last else segments[number + 1].base_offset
        empty_last = is_last and segment.size == 0
        if empty_last or committed < segment_end or not test(segment, segment_end):
            return number
    return len(segments)
