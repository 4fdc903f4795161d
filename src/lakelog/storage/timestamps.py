"""Finding records by time, exactly: the index narrows the search, the records decide.

A batch's header may claim a time that none of its records has: a producer is believed there, as it
is not walked when it comes in. A search gives up when it has read too much of that kind.

Source: KIP-33, KIP-734; `LogSegment.findOffsetByTimestamp` of Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from lakelog.records.batch import BatchHeader, CorruptRecord
from lakelog.records.heads import iter_heads
from lakelog.records.record import record_view
from lakelog.runtime.api import File
from lakelog.storage.checking import check_now
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
    search = _Search(log)
    for segment in log.segments:
        if segment.next_offset <= search.start:
            continue
        search.check_end(segment)
        if segment.greatest_timestamp() < timestamp:
            continue
        found = search.first_in(segment, timestamp)
        if found is not None:
            return found
    return None


def find_max_timestamp(log: Log) -> TimestampOffset | None:
    """The first record with the greatest timestamp of all."""
    search = _Search(log)
    live = [segment for segment in log.segments if segment.next_offset > log.log_start_offset]
    for segment in live:
        search.check_end(segment)
    live.sort(key=lambda segment: segment.greatest_timestamp(), reverse=True)
    if not live or live[0].greatest_timestamp() < 0:
        return None
    found = search.first_in(live[0], live[0].greatest_timestamp())
    return found or search.greatest_in(live)


class _Search:
    """For one answer, among the records from `start` on."""

    def __init__(self, log: Log) -> None:
        self._epochs = log.leader_epochs
        self.start = log.log_start_offset
        self._left = DECODED_BYTES_MAX
        """Of records that may be read without finding there what the header claims."""

    def check_end(self, segment: Segment) -> None:
        """Of a segment that is older than the process: its greatest timestamp is told there."""
        if segment.unchecked:
            check_now(segment, segment.last_time_position(), segment.size, self._epochs)

    def first_in(self, segment: Segment, timestamp: int) -> TimestampOffset | None:
        position = max(segment.position_before_time(timestamp), segment.position_of(self.start))
        file = segment.open().file
        for at, header in scan_headers(file, position, segment.size):
            if header.newest_timestamp < timestamp:
                continue
            check_now(segment, position, at + header.size, self._epochs)
            for time_ms, offset in self._times(file, at, header):
                if time_ms >= timestamp:
                    return TimestampOffset(time_ms, offset, header.partition_leader_epoch)
        return None

    def greatest_in(self, segments: list[Segment]) -> TimestampOffset | None:
        """Where what an index tells is of a record before the start, or of none."""
        best: TimestampOffset | None = None
        for segment in segments:
            if best is not None and segment.greatest_timestamp() < best.timestamp:
                break
            best = self._greatest_of(segment, best)
        return best if best is not None and best.timestamp >= 0 else None

    def _greatest_of(
        self, segment: Segment, best: TimestampOffset | None
    ) -> TimestampOffset | None:
        """Of the first batch, of which a part may be before the start, and of the newest other."""
        file, position = segment.open().file, segment.position_of(self.start)
        batches = scan_headers(file, position, segment.size)
        best = self._greater(best, file, islice(batches, 1))
        newest = max(batches, key=lambda entry: entry[1].newest_timestamp, default=None)
        if newest is None:
            return best
        best = self._greater(best, file, [newest])
        if best is None or best.timestamp < newest[1].newest_timestamp:
            best = self._greater(best, file, scan_headers(file, position, segment.size))
        return best

    def _greater(
        self,
        best: TimestampOffset | None,
        file: File,
        batches: Iterable[tuple[int, BatchHeader]],
    ) -> TimestampOffset | None:
        """The greatest of `best` and what is in the batches; of equal ones the first."""
        for at, header in batches:
            if best is not None and header.newest_timestamp < best.timestamp:
                continue
            for time_ms, offset in self._times(file, at, header):
                if best is None or (time_ms, -offset) > (best.timestamp, -best.offset):
                    best = TimestampOffset(time_ms, offset, header.partition_leader_epoch)
        return best

    def _times(self, file: File, position: int, header: BatchHeader) -> Iterator[tuple[int, int]]:
        """Timestamp and offset of the records of a batch, lazily."""
        newest = -1
        try:
            batch = file.read_at(position, header.size)
            data = record_view(batch, header, DECODED_BYTES_MAX)
            for offset, time_ms, _ in iter_heads(data, header):
                newest = max(newest, time_ms)
                if offset >= self.start:
                    yield time_ms, offset
        except CorruptRecord as error:
            raise CorruptLog(file.path, position, str(error)) from error
        if newest < header.newest_timestamp:
            self._left -= len(data)
        if self._left < 0:
            raise CorruptLog(file.path, position, "too many batches without the time they claim")
