"""Finding records by time, exactly: the index narrows the search, the records decide.

Source: KIP-33, KIP-734; `LogSegment.findOffsetByTimestamp` of Apache Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lakelog.records.batch import BatchHeader, CorruptRecord
from lakelog.records.record import Record, decode_records
from lakelog.runtime.api import File
from lakelog.storage.errors import CorruptLog
from lakelog.storage.scan import scan_headers
from lakelog.storage.validate import DECODED_BYTES_MAX

if TYPE_CHECKING:
    from lakelog.storage.log import Log
    from lakelog.storage.segment import Segment


class TimestampOffset(NamedTuple):
    """A record's timestamp in milliseconds, its offset, and the epoch it was written in."""

    timestamp: int
    offset: int
    leader_epoch: int


def find_by_timestamp(log: Log, timestamp: int) -> TimestampOffset | None:
    """The first record, in offset order, whose timestamp is at least `timestamp`."""
    start = log.log_start_offset
    for segment in log.segments:
        if segment.next_offset <= start or segment.greatest_timestamp() < timestamp:
            continue
        found = _find_in(segment, timestamp, start)
        if found is not None:
            return found
    return None


def find_max_timestamp(log: Log) -> TimestampOffset | None:
    """The first record with the greatest timestamp of all."""
    live = [segment for segment in log.segments if segment.next_offset > log.log_start_offset]
    live.sort(key=lambda segment: segment.greatest_timestamp(), reverse=True)
    if not live or live[0].greatest_timestamp() < 0:
        return None
    found = _find_in(live[0], live[0].greatest_timestamp(), log.log_start_offset)
    return found or _search_greatest(live, log.log_start_offset)


def _search_greatest(segments: list[Segment], start: int) -> TimestampOffset | None:
    """Among all records, where what an index tells is of one below the log's start."""
    best: TimestampOffset | None = None
    for segment in segments:
        if best is not None and segment.greatest_timestamp() < best.timestamp:
            break
        handle = segment.open()
        for at, header in scan_headers(handle.file, segment.position_of(start), segment.size):
            if best is not None and header.max_timestamp < best.timestamp:
                continue
            for record in _records(handle.file, at, header):
                rank = record.timestamp, -record.offset
                if record.offset >= start and (best is None or rank > (best[0], -best[1])):
                    epoch = header.partition_leader_epoch
                    best = TimestampOffset(record.timestamp, record.offset, epoch)
    return best if best is not None and best.timestamp >= 0 else None


def _find_in(segment: Segment, timestamp: int, start: int) -> TimestampOffset | None:
    position = max(segment.position_before_time(timestamp), segment.position_of(start))
    handle = segment.open()
    for at, header in scan_headers(handle.file, position, segment.size):
        if header.max_timestamp < timestamp:
            continue
        for record in _records(handle.file, at, header):
            if record.timestamp >= timestamp and record.offset >= start:
                epoch = header.partition_leader_epoch
                return TimestampOffset(record.timestamp, record.offset, epoch)
    return None


def _records(file: File, position: int, header: BatchHeader) -> list[Record]:
    try:
        return decode_records(file.read_at(position, header.size), header, DECODED_BYTES_MAX)
    except CorruptRecord as error:
        raise CorruptLog(file.path, position, str(error)) from error
