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
    newest = max(live, key=lambda segment: segment.greatest_timestamp(), default=None)
    if newest is None or newest.greatest_timestamp() < 0:
        return None
    return _find_in(newest, newest.greatest_timestamp(), log.log_start_offset)


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
