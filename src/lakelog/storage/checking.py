"""Whether stored batches are still what was written, asked once in a process before it serves them.

A batch that this process appended, or has scanned in a recovery, is known to be whole. What lay in
a segment before is checked range by range as it is first read: checksums, and, as these leave out
a batch's place and length, that each batch follows the one before it and fits the index and the
leader epochs. What does not pass is never served, and what follows it only from the next index
entry on.

`CheckJob.run` reads and may be in a thread; the rest belongs to the segment's owner.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable
from typing import TYPE_CHECKING

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.records.batch import (
    HEADER_SIZE,
    MAGIC,
    BatchHeader,
    CorruptRecord,
    check_crc,
    read_header,
)
from lakelog.runtime.api import File
from lakelog.storage.errors import CorruptLog
from lakelog.storage.handles import Handle, LogSlice
from lakelog.storage.index import SegmentIndex
from lakelog.storage.names import LOG

if TYPE_CHECKING:
    from lakelog.storage.epochs import EpochCache
    from lakelog.storage.segment import Segment

_WINDOW = 256 * 1024
_RANGES_MAX = 64


class UncheckedSlice(LogSlice):
    """A slice that is not to be served before `CheckJob`s have passed it."""

    __slots__ = ("offset", "segment")

    def __init__(
        self, handle: Handle, position: int, size: int, segment: Segment, offset: int
    ) -> None:
        super().__init__(handle, position, size)
        self.segment = segment
        self.offset = offset


class Checks:
    """What is known of one segment that is older than the process."""

    __slots__ = ("damages", "ranges")

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int, int]] = []
        """Start, end and the offset that follows, by position; what lies within is whole."""
        self.damages: list[tuple[int, str]] = []

    def covers(self, start: int, end: int) -> bool:
        return any(first <= start and end <= last for first, last, _ in self.ranges)

    def last_end(self, position: int) -> tuple[int, int]:
        """The nearest end of a range at or before `position`, and the offset there; (0, -1)."""
        ends = [(end, offset) for _, end, offset in self.ranges if end <= position]
        return max(ends, default=(0, -1))

    def add(self, start: int, end: int, next_offset: int) -> None:
        if end <= start:
            return
        kept = []
        for first, last, offset in self.ranges:
            if last < start or end < first:
                kept.append((first, last, offset))
                continue
            start = min(start, first)
            if last > end:
                end, next_offset = last, offset
        added = (start, end, next_offset)
        insort(kept, added)
        if len(kept) > _RANGES_MAX:
            del kept[kept[0] is added]  # the reader that waits for the new one would ask forever
        self.ranges = kept

    def note_damage(self, position: int, reason: str) -> None:
        if all(known != position for known, _ in self.damages):
            insort(self.damages, (position, reason))

    def damage_in(self, start: int, end: int) -> tuple[int, str] | None:
        """The first that is known from `start` on and before `end`."""
        at = bisect_left(self.damages, (start, ""))
        found = self.damages[at : at + 1]
        return found[0] if found and found[0][0] < end else None


class CheckJob:
    """Checks the batches from `start`, where one is known to begin, to `end`."""

    def __init__(
        self, found: UncheckedSlice, start: int, expected: int, epochs: EpochCache
    ) -> None:
        """`expected` is the offset that is due at `start`, -1 if that is not known."""
        segment = found.segment
        self.key: Hashable = self
        self.path = found.file.path
        self.start = start
        self.failure: OSError | None = None
        self._slice = found
        self._segment = segment
        self._size = segment.size
        self._end = found.position + found.size
        self._limit = segment.next_offset
        self._epochs = epochs
        self._damage: tuple[int, str] | None = None
        self._next = expected
        self._valid = start
        self._last: list[tuple[int, bool]] = []
        """Of the last two batches the position, and whether nothing is missing before and in it:
        then its offset cannot be too high unless that of the batch before it is."""
        self._places: dict[int, tuple[int, int, int]] = {}

    def run(self) -> None:
        """Blocks on the device; touches nothing but the file."""
        try:
            self._walk(self._slice.file)
        except CorruptRecord as error:
            self._damage = self._valid, str(error)
        except OSError as error:
            self.failure = error

    def _walk(self, file: File) -> None:
        window, start, position = b"", self.start, self.start
        while position < self._end:
            at = position - start
            if at + HEADER_SIZE > len(window):
                window, start, at = _read(file, position, _WINDOW, self._size), position, 0
            header = read_header(window, at)
            if at + header.size > len(window):
                size = max(_WINDOW, header.size)
                window, start, at = _read(file, position, size, self._size), position, 0
            self._check(window, at, header, position)
            self._places[position] = (
                header.base_offset,
                header.last_offset,
                header.partition_leader_epoch,
            )
            is_whole = header.base_offset == self._next and _is_gapless(header)
            self._last = [*self._last[-1:], (position, is_whole)]
            self._next = header.last_offset + 1
            position = self._valid = position + header.size
        if position != self._end:
            raise CorruptRecord(f"no batch ends at {self._end}")
        self._check_following(file)

    def _check(self, window: bytes, at: int, header: BatchHeader, position: int) -> None:
        first, last = header.base_offset, header.last_offset
        if header.magic != MAGIC:
            raise CorruptRecord(f"magic {header.magic} is not known")
        if not max(self._next, self._segment.base_offset) <= first <= last < self._limit:
            self._valid = self._first_doubtful(position)
            raise CorruptRecord(f"offsets {first} to {last} where {self._next} was due")
        if not check_crc(window, at, header):
            raise CorruptRecord(f"the checksum of offset {first} does not match")
        if position == self._slice.position and last < self._slice.offset:
            raise CorruptRecord(f"offset {last} where {self._slice.offset} was to be")

    def _first_doubtful(self, position: int) -> int:
        """Where the first of the last two batches begins whose offset may be too high."""
        return next((at for at, is_whole in self._last if not is_whole), position)

    def _check_following(self, file: File) -> None:
        """The last batch ends where the segment does, or before the next one begins.

        Which of the two is wrong cannot be told, so neither is served. Behind a gap both may be too
        high, so that only the batch after them tells.
        """
        following, end = self._next, self._end
        last, is_whole = self._last[-1]
        for _ in range(1 if is_whole else 2):
            due, is_end = following, end == self._size
            try:
                header = None if is_end else self._header_at(file, end)
            except CorruptRecord:
                return  # the check of that batch tells
            following = self._limit if header is None else header.base_offset
            if following < due or (is_end and following != due):
                self._valid = self._first_doubtful(last)
                raise CorruptRecord(f"offset {due - 1} is followed by {following}")
            if header is None:
                return
            following, end = header.last_offset + 1, end + header.size

    def _header_at(self, file: File, position: int) -> BatchHeader:
        return read_header(_read(file, position, HEADER_SIZE, self._size))

    def abandon(self) -> None:
        """Gives up the slice of a job that is not to be run."""
        self._slice.release()

    def finish(self) -> None:
        """To be called by the owner, once; the slice is released."""
        segment, checks = self._segment, self._segment.checks
        self._slice.release()
        if self.failure is not None or checks is None or segment.size < self._size:
            return
        damage, valid = self._damage, self._valid
        wrong = self._wrong_epoch()
        if wrong is not None:
            damage = valid, _ = wrong
        index = segment.loaded_index
        if index is not None and not self._fits(index):
            segment.distrust_index()
        place = self._places.get(valid)
        checks.add(self.start, valid, self._next if place is None else place[0])
        if damage is not None:
            checks.note_damage(*damage)
        elif checks.covers(0, segment.unchecked):
            segment.unchecked, segment.checks = 0, None

    def _wrong_epoch(self) -> tuple[int, str] | None:
        for position, (base, _, epoch) in self._places.items():
            known = self._epochs.epoch_of(base)
            if known not in (-1, epoch):
                return position, f"offset {base} is of leader epoch {known}, not {epoch}"
        return None

    def _fits(self, index: SegmentIndex) -> bool:
        """Whether the index's entries are of the batches that were found."""
        first, end = (bisect_left(index.positions, at) for at in (self.start, self._valid))
        base = self._segment.base_offset
        return all(
            (place := self._places.get(index.positions[entry])) is not None
            and place[1] == base + index.offsets[entry]
            for entry in range(first, end)
        )


def _is_gapless(header: BatchHeader) -> bool:
    return header.last_offset - header.base_offset + 1 == header.records_count


def _read(file: File, position: int, size: int, end: int) -> bytes:
    return file.read_at(position, min(size, end - position))


def slice_of(segment: Segment, position: int, size: int, offset: int) -> LogSlice:
    """A slice of a segment that is older than the process; unchecked unless it has been checked.

    It ends before what is known to be damaged. Raises `CorruptLog` where nothing is left.

    That `position` lies in what is whole does not mean that a batch begins there: the way to it may
    have led over a length that is wrong.
    """
    checks = segment.checks
    assert checks is not None
    start, _ = _anchor(segment, checks, position, offset)
    damage = checks.damage_in(start, position + size)
    if damage is not None:
        if damage[0] <= position:
            raise CorruptLog(segment.path(LOG), *damage)
        size = damage[0] - position
    if checks.covers(start, position + size):
        return LogSlice(segment.open(), position, size)
    return UncheckedSlice(segment.open(), position, size, segment, offset)


def check_of(segment: Segment, start: int, end: int, epochs: EpochCache) -> CheckJob | None:
    """The check that a range of whole batches needs before it is read, if any."""
    checks = segment.checks
    if checks is None or not start < min(segment.unchecked, end) or checks.covers(start, end):
        return None
    found = UncheckedSlice(segment.open(), start, end - start, segment, -1)
    return CheckJob(found, start, -1, epochs)


def refuse_damaged(segment: Segment, start: int, end: int) -> None:
    """Raises `CorruptLog` if something in a range of whole batches is known to be damaged."""
    checks = segment.checks
    damage = None if checks is None else checks.damage_in(start, end)
    if damage is not None:
        raise CorruptLog(segment.path(LOG), *damage)


def begin_check(found: UncheckedSlice, epochs: EpochCache) -> CheckJob:
    """Takes over the slice."""
    segment = found.segment
    assert segment.checks is not None
    start, expected = _anchor(segment, segment.checks, found.position, found.offset)
    return CheckJob(found, start, expected, epochs)


def _anchor(segment: Segment, checks: Checks, position: int, offset: int) -> tuple[int, int]:
    """Where a batch begins at or before `position`, the offset due there, and all is well before.

    Not behind the index entry from which `position` was found for `offset`.

    Strictly before it, unless it is the first or known to follow: a reader must get the very next.
    """
    end, expected = checks.last_end(position)
    if end == position:
        return end, expected
    begun = min(segment.entry_before(position), segment.entry_for(offset))
    if end >= begun and (checks.covers(begun, end) or begun == end):
        return end, expected if end else segment.base_offset
    return begun, -1


def may_exceed(max_bytes: int, *, min_one: bool) -> bool:
    """Whether one batch may be read where none is within the limit."""
    if max_bytes < 0:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"a limit of {max_bytes} bytes")
    return min_one
