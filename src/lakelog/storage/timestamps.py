"""Finding records by time, exactly: the index narrows the search, the records decide.

A batch's header may claim a time that none of its records has: a producer is believed there, as it
is not walked when it comes in. A search gives up when it has read too much of that kind. Of a batch
that takes too much memory decompressed, where the topic's records are not looked at when they come
in, the header is told: whoever reads from the batch on misses nothing.

What a topic allows its clients (`max.decompressed.message.bytes`) is no bound here: it may have
been lowered since, and what is stored is no worse by that.

A search may take seconds, so it goes in steps: it stops after some thousand records, before a
large batch is decompressed, where an index has to be loaded and where much has to be checked. All
but the first may be done in a thread. Between two steps anything may happen to the log; the file
that is being read stays open.

Source: KIP-33, KIP-734; `LogSegment.findOffsetByTimestamp` of Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from lakelog.records.batch import BatchHeader, CorruptRecord
from lakelog.records.errors import RecordsTooLarge
from lakelog.records.heads import iter_heads
from lakelog.records.record import record_view
from lakelog.runtime.api import File
from lakelog.storage.checking import check_of, refuse_damaged
from lakelog.storage.errors import CorruptLog
from lakelog.storage.preparation import NotReady
from lakelog.storage.scan import scan_headers
from lakelog.storage.seeking import check_greatest, check_last_time, check_seek, check_time
from lakelog.storage.validate import DECODED_BYTES_MAX

if TYPE_CHECKING:
    from lakelog.storage.local_log import LocalLog
    from lakelog.storage.segment import Segment


class TimestampOffset(NamedTuple):
    """A record's timestamp in milliseconds, its offset, and the epoch it was written in."""

    timestamp: int
    offset: int
    leader_epoch: int


_RECORDS_AT_ONCE = 1000
_COMPRESSED_AT_ONCE = 16 << 10
"""A larger compressed batch is not decompressed by the search itself."""

_CHECKED_AT_ONCE = 64 << 10
"""A longer range of batches is not checked by the search itself."""

Work = Callable[[], bytes | memoryview | None]
"""What a step of a search asks for; it is sent the result, or thrown a `CorruptRecord`."""
T = TypeVar("T")
Steps = Generator[Work | None, Any, T]
Search = Steps[TimestampOffset | None]


def at_once(search: Search) -> TimestampOffset | None:
    """What is found, in as long as that takes."""
    try:
        work = next(search)
        while True:
            work = next(search) if work is None else _sent(search, work)
    except StopIteration as stop:
        found: TimestampOffset | None = stop.value
        return found


def _sent(search: Search, work: Work) -> Work | None:
    try:
        result = work()
    except CorruptRecord as error:
        return search.throw(error)
    return search.send(result)


def search_time(log: LocalLog, timestamp: int | None) -> Search:
    """The first record at or after a time (ms), or without one that with the greatest timestamp."""
    return search_max_timestamp(log) if timestamp is None else search_timestamp(log, timestamp)


def search_timestamp(log: LocalLog, timestamp: int) -> Search:
    """The first record, in offset order, whose timestamp is at least `timestamp`."""
    search = _Search(log)
    for segment in list(log.segments):
        if segment.next_offset <= search.start:
            continue
        if (yield from search.greatest(segment)) < timestamp:
            continue
        found = yield from search.first_in(segment, timestamp)
        if found is not None:
            return found
    return None


def search_max_timestamp(log: LocalLog) -> Search:
    """The first record with the greatest timestamp of all."""
    search = _Search(log)
    live = [segment for segment in log.segments if segment.next_offset > log.log_start_offset]
    for segment in live:
        yield from search.greatest(segment)
    live.sort(key=lambda segment: segment.max_timestamp, reverse=True)
    if not live or live[0].max_timestamp < 0:
        return None
    found = yield from search.first_in(live[0], live[0].max_timestamp)
    return found or (yield from search.greatest_in(live))


def find_by_timestamp(log: LocalLog, timestamp: int) -> TimestampOffset | None:
    return at_once(search_timestamp(log, timestamp))


def find_max_timestamp(log: LocalLog) -> TimestampOffset | None:
    return at_once(search_max_timestamp(log))


class _Search:
    """For one answer, among the records from the log's start on."""

    def __init__(self, log: LocalLog) -> None:
        self.start = log.log_start_offset
        self._log = log
        self._left = DECODED_BYTES_MAX
        """Of records that may be read without finding there what the header claims."""

    def _ready(self, segment: Segment, check: Callable[[LocalLog, Segment], None]) -> Steps[bool]:
        """Does what `check` finds to be done first; false if the segment is gone meanwhile."""
        while segment in self._log.segments:
            try:
                check(self._log, segment)
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
        """Checks batches that are older than the process. Raises `CorruptLog` or `OSError`."""
        job = check_of(segment, start, end, self._log.leader_epochs)
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
        """The greatest timestamp of a segment; -1 of one that is gone.

        What tells it is checked first if it is older than the process.
        """
        if segment.unchecked:
            if not (yield from self._ready(segment, check_last_time)):
                return -1
            position = segment.last_time_position()
            yield from self._check(segment, position, segment.size)
        is_there = yield from self._ready(segment, check_greatest)
        return segment.max_timestamp if is_there else -1

    def first_in(self, segment: Segment, timestamp: int) -> Search:
        check = partial(check_time, timestamp=timestamp, offset=self.start)
        if not (yield from self._ready(segment, check)):
            return None
        position = max(segment.position_before_time(timestamp), segment.position_of(self.start))
        handle, end = segment.open(), segment.size
        handle.readers += 1
        try:
            for at, header in scan_headers(handle.file, position, end):
                if header.newest_timestamp < timestamp:
                    continue
                yield from self._check(segment, position, at + header.size)
                found = yield from self._in_batch(handle.file, at, header, timestamp)
                if found is not None:
                    return found
        finally:
            handle.release()
        return None

    def greatest_in(self, segments: list[Segment]) -> Search:
        """Where what an index tells is of a record before the start, or of none."""
        best: TimestampOffset | None = None
        for segment in segments:
            if best is not None and segment.max_timestamp < best.timestamp:
                break
            if (yield from self._ready(segment, partial(check_seek, offset=self.start))):
                best = yield from self._greatest_of(segment, best)
        return best if best is not None and best.timestamp >= 0 else None

    def _greatest_of(self, segment: Segment, best: TimestampOffset | None) -> Search:
        """Of the first batch, of which a part may be before the start, and of the newest other."""
        handle, position, end = segment.open(), segment.position_of(self.start), segment.size
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
        """The greatest of `best` and what is in the batches; of equal ones the first."""
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
        """The first record at or after `timestamp`, or without one the greatest, unless it is
        `best`."""
        try:
            return (yield from self._among_records(file, position, header, timestamp, best))
        except RecordsTooLarge:
            newest = header.newest_timestamp
            if timestamp is None and best is not None and best.timestamp >= newest:
                return best
            first = max(header.base_offset, self.start)
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
            if offset < self.start:
                continue
            if timestamp is None:
                if best is None or (time_ms, -offset) > (best.timestamp, -best.offset):
                    best = TimestampOffset(time_ms, offset, epoch)
            elif time_ms >= timestamp:
                return TimestampOffset(time_ms, offset, epoch)
        if newest < header.newest_timestamp:
            self._left -= len(data)
        if self._left < 0:
            raise CorruptLog(file.path, position, "too many batches without the time they claim")
        return best


def _records(
    file: File, position: int, header: BatchHeader
) -> Generator[Work | None, bytes | memoryview, bytes | memoryview]:
    batch = file.read_at(position, header.size)
    if header.codec and header.size > _COMPRESSED_AT_ONCE:
        return (yield lambda: record_view(batch, header, DECODED_BYTES_MAX))
    return record_view(batch, header, DECODED_BYTES_MAX)
