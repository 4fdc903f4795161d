"""Exact search for records by time: the index narrows the search, the records decide.

A batch's header may contain a time that no record has, because the broker does not walk
most batches when they are produced. A search gives up after it has read too many such batches. For
a batch that takes too much memory when decompressed, the search returns the header's time and
first offset: a consumer that reads from there misses nothing.

The topic's limit for clients (`max.decompressed.message.bytes`) does not apply here: it may have
been lowered since the batch was stored.

A search may take seconds, so it runs in steps. A step ends after a thousand records, before a large
batch is decompressed, where an index has to be loaded, and where a long range has to be checked;
all but the first may be done in a thread. Between two steps the log may change in any way; the file
being read stays open.

Source: KIP-33, KIP-734; `LogSegment.findOffsetByTimestamp` of Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from lakelog.records.batch import BatchHeader, CorruptRecord, RecordsTooLarge
from lakelog.records.record import iter_heads, record_view
from lakelog.runtime.api import File
from lakelog.storage.epochs import EpochCache
from lakelog.storage.errors import CorruptLog
from lakelog.storage.preparation import NotReady
from lakelog.storage.reading.seeking import check_greatest, check_last_time, check_seek, check_time
from lakelog.storage.segments.checking import check_of, refuse_damaged
from lakelog.storage.segments.scan import scan_headers
from lakelog.storage.segments.segment import Segment
from lakelog.storage.segments.segment_list import SegmentList
from lakelog.storage.validation import DECODED_BYTES_MAX


class TimestampOffset(NamedTuple):
    """A record's timestamp in milliseconds, its offset, and the epoch it was written in."""

    timestamp: int
    offset: int
    leader_epoch: int


_RECORDS_AT_ONCE = 1000
_COMPRESSED_AT_ONCE = 16 << 10
"""Bytes; a larger compressed batch is decompressed by a `Work`."""

_CHECKED_AT_ONCE = 64 << 10
"""Bytes; a longer range of batches is checked by a `Work`."""

Work = Callable[[], bytes | memoryview | None]
"""The work of a step; the search is sent its result, or thrown its `CorruptRecord`."""
T = TypeVar("T")
Steps = Generator[Work | None, Any, T]
Search = Steps[TimestampOffset | None]


def search_timestamp(
    segments: SegmentList, epochs: EpochCache, start: int, timestamp: int
) -> Search:
    """Find the first record from offset `start` on whose timestamp (ms) is at least `timestamp`.

    The steps raise `CorruptLog` for a damaged batch, and `OSError`.
    """
    search = _Search(segments, epochs, start)
    # A copy: retention may delete segments between two steps.
    for segment in list(segments):
        if segment.next_offset <= start:
            continue
        if (yield from search.greatest(segment)) < timestamp:
            continue
        record = yield from search.first_in(segment, timestamp)
        if record is not None:
            return record
    return None


def search_max_timestamp(segments: SegmentList, epochs: EpochCache, start: int) -> Search:
    """Find the first of the records from `start` on that have the greatest timestamp.

    The steps raise the errors of `search_timestamp`.
    """
    search = _Search(segments, epochs, start)
    live = [segment for segment in segments if segment.next_offset > start]
    for segment in live:
        yield from search.greatest(segment)
    live.sort(key=lambda segment: segment.max_timestamp, reverse=True)
    if not live or live[0].max_timestamp < 0:
        return None
    record = yield from search.first_in(live[0], live[0].max_timestamp)
    # The header's time may belong to no record, or to one before `start`.
    return record or (yield from search.greatest_in(live))


class _Search:
    """One search among the records from offset `start` on."""

    def __init__(self, segments: SegmentList, epochs: EpochCache, start: int) -> None:
        self._segments = segments
        self._epochs = epochs
        self._start = start
        self._left = DECODED_BYTES_MAX
        """Bytes of records that may still be read without finding the time of their header."""

    def _ready(
        self, segment: Segment, check: Callable[[SegmentList, Segment], None]
    ) -> Steps[bool]:
        """Do what `check` requires first; return false if the segment was deleted meanwhile."""
        while segment in self._segments:
            try:
                check(self._segments, segment)
            except NotReady as first:
                job = first.job
            else:
                return True
            yield job.run
            job.finish()
            if job.failure is not None:
                raise job.failure
        return False

    def _check(self, segment: Segment, start: int, end: int) -> Steps[None]:
        """Check batches that are older than the process. Raises `CorruptLog` or `OSError`."""
        job = check_of(segment, start, end, self._epochs)
        if job is not None:
            if end - start > _CHECKED_AT_ONCE:
                yield job.run
            else:
                job.run()
            job.finish()
            if job.failure is not None:
                raise job.failure
        refuse_damaged(segment, start, end)

    def greatest(self, segment: Segment) -> Steps[int]:
        """Return the greatest timestamp of a segment; -1 for a deleted one.

        The batches that show it are checked first if they are older than the process.
        """
        if segment.unchecked:
            if not (yield from self._ready(segment, check_last_time)):
                return -1
            position = segment.last_time_position()
            yield from self._check(segment, position, segment.size)
        is_there = yield from self._ready(segment, check_greatest)
        return segment.max_timestamp if is_there else -1

    def first_in(self, segment: Segment, timestamp: int) -> Search:
        check = partial(check_time, timestamp=timestamp, offset=self._start)
        if not (yield from self._ready(segment, check)):
            return None
        position = max(segment.position_before_time(timestamp), segment.position_of(self._start))
        handle, end = segment.open(), segment.size
        handle.readers += 1
        try:
            for at, header in scan_headers(handle.file, position, end):
                if header.newest_timestamp < timestamp:
                    continue
                yield from self._check(segment, position, at + header.size)
                record = yield from self._in_batch(handle.file, at, header, timestamp)
                if record is not None:
                    return record
        finally:
            handle.release()
        return None

    def greatest_in(self, segments: list[Segment]) -> Search:
        """Find it if the greatest timestamps of the indexes belong to earlier or no records."""
        best: TimestampOffset | None = None
        for segment in segments:
            if best is not None and segment.max_timestamp < best.timestamp:
                break
            if (yield from self._ready(segment, partial(check_seek, offset=self._start))):
                best = yield from self._greatest_of(segment, best)
        return best if best is not None and best.timestamp >= 0 else None

    def _greatest_of(self, segment: Segment, best: TimestampOffset | None) -> Search:
        """Compare the first batch, which may begin before the start, and the newest other one."""
        handle, position, end = segment.open(), segment.position_of(self._start), segment.size
        file = handle.file
        handle.readers += 1
        try:
            batches = scan_headers(file, position, end)
            best = yield from self._greater(best, file, islice(batches, 1))
            newest = max(batches, key=lambda entry: entry[1].newest_timestamp, default=None)
            if newest is None:
                return best
            best = yield from self._greater(best, file, [newest])
            if best is None or best.timestamp < newest[1].newest_timestamp:
                best = yield from self._greater(best, file, scan_headers(file, position, end))
            return best
        finally:
            handle.release()

    def _greater(
        self,
        best: TimestampOffset | None,
        file: File,
        batches: Iterable[tuple[int, BatchHeader]],
    ) -> Search:
        """Return the greatest of `best` and the records in the batches; of equal ones the first."""
        for at, header in batches:
            if best is None or header.newest_timestamp >= best.timestamp:
                best = yield from self._in_batch(file, at, header, None, best)
        return best

    def _in_batch(
        self,
        file: File,
        position: int,
        header: BatchHeader,
        timestamp: int | None,
        best: TimestampOffset | None = None,
    ) -> Search:
        """Return the first record at or after `timestamp`; without one, the greatest or `best`."""
        try:
            return (yield from self._among_records(file, position, header, timestamp, best))
        except RecordsTooLarge:
            newest = header.newest_timestamp
            if timestamp is None and best is not None and best.timestamp >= newest:
                return best
            first = max(header.base_offset, self._start)
            return TimestampOffset(newest, first, header.partition_leader_epoch)
        except CorruptRecord as error:
            raise CorruptLog(file.path, position, str(error)) from error

    def _among_records(
        self,
        file: File,
        position: int,
        header: BatchHeader,
        timestamp: int | None,
        best: TimestampOffset | None,
    ) -> Search:
        newest, epoch = -1, header.partition_leader_epoch
        data = yield from _records(file, position, header)
        for number, (offset, time_ms, _) in enumerate(iter_heads(data, header), 1):
            newest = max(newest, time_ms)
            if not number % _RECORDS_AT_ONCE:
                yield None
            if offset < self._start:
                continue
            if timestamp is None:
                if best is None or (time_ms, -offset) > (best.timestamp, -best.offset):
                    best = TimestampOffset(time_ms, offset, epoch)
            elif time_ms >= timestamp:
                return TimestampOffset(time_ms, offset, epoch)
        if newest < header.newest_timestamp:
            self._left -= len(data)
        if self._left < 0:
            raise CorruptLog(
                file.path, position, "too many batches have no record with the time in their header"
            )
        return best


def _records(
    file: File, position: int, header: BatchHeader
) -> Generator[Work | None, bytes | memoryview, bytes | memoryview]:
    batch = file.read_at(position, header.size)
    if header.codec and header.size > _COMPRESSED_AT_ONCE:
        return (yield lambda: record_view(batch, header, DECODED_BYTES_MAX))
    return record_view(batch, header, DECODED_BYTES_MAX)
