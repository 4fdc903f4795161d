"""Checks of stored batches, once in a process, before it serves them.

A batch that this process appended, or scanned in a recovery, is known to be whole. Older batches
are checked range by range when they are first read. A checksum does not cover a batch's offset and
length; therefore each batch must also follow the one before it and agree with the index and the
leader epochs. A batch that fails is never served; batches after it are served from the next index
entry on.

`CheckJob.run` reads and may be in a thread; the rest belongs to the segment's owner.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable

from lakelog.records.batch import (
    HEADER_SIZE,
    MAGIC,
    BatchHeader,
    CorruptRecord,
    check_crc,
    read_header,
)
from lakelog.runtime.api import File
from lakelog.storage.epochs import EpochCache
from lakelog.storage.errors import CorruptLog
from lakelog.storage.files import LOG
from lakelog.storage.segments.checks import Checks
from lakelog.storage.segments.handles import Handle, LogSlice
from lakelog.storage.segments.segment import Segment
from lakelog.storage.segments.segment_index import SegmentIndex

_WINDOW = 256 * 1024


class UncheckedSlice(LogSlice):
    """A slice that must pass `CheckJob`s before it is served."""

    __slots__ = ("offset", "segment")

    def __init__(
        self, handle: Handle, position: int, size: int, segment: Segment, offset: int
    ) -> None:
        super().__init__(handle, position, size)
        self.segment = segment
        self.offset = offset


class CheckJob:
    """Checks the batches from byte `start`, where a batch is known to begin, to the slice's end."""

    def __init__(self, part: UncheckedSlice, start: int, expected: int, epochs: EpochCache) -> None:
        """`expected` is the offset due at `start`, -1 if it is unknown."""
        segment = part.segment
        assert start <= part.position <= part.position + part.size <= segment.size
        self.key: Hashable = self
        self.path = part.file.path
        self.start = start
        self.failure: OSError | None = None
        self._slice = part
        self._segment = segment
        self._size = segment.size
        self._end = part.position + part.size
        self._limit = segment.next_offset
        self._epochs = epochs
        self._damage: tuple[int, str] | None = None
        self._next = expected
        self._valid = start
        self._last: list[tuple[int, bool]] = []
        """Positions of the last two batches, and whether no offset is missing before and in each.

        The base offset of such a batch is not too high, unless that of the batch before it is."""
        self._places: dict[int, tuple[int, int, int]] = {}

    def run(self) -> None:
        """Read and check the batches; blocks on the device and touches nothing but the file.

        Raises nothing: `finish` reports damage, and an `OSError` becomes `failure`.
        """
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
        """Return where the first of the last two batches begins whose offset may be too high."""
        return next((at for at, is_whole in self._last if not is_whole), position)

    def _check_following(self, file: File) -> None:
        """Check that the last batch ends where the segment does, or before the next one begins.

        If they overlap, either may have the wrong offset, so neither is served. After a gap the
        offsets of both may be too high; then the batch after them is compared as well.
        """
        following, end = self._next, self._end
        last, is_whole = self._last[-1]
        for _ in range(1 if is_whole else 2):
            due, is_end = following, end == self._size
            try:
                # No checksum covers the base offset, so two neighbours are compared (see
                # `tell_misplaced`).
                header = None if is_end else self._header_at(file, end)
            except CorruptRecord:
                return  # found when that batch is checked
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
        """Release the slice of a job that will not be run."""
        self._slice.release()

    def finish(self) -> None:
        """Record the result and release the slice; called once, by the owner, after `run`.

        The result is dropped if the segment was truncated meanwhile.
        """
        segment, checks = self._segment, self._segment.checks
        self._slice.release()
        if self.failure is not None or checks is None or segment.size < self._size:
            return
        damage, valid = self._damage, self._valid
        wrong = self._wrong_epoch()
        if wrong is not None:
            # Only the owner may read the epoch cache, so this part of the check runs on the loop.
            damage = valid, _ = wrong
        index = segment.indexes.loaded
        # The batches are right, but an index entry names another place: searches would miss
        # records.
        if index is not None and not self._fits(index):
            segment.distrust_index()
        offsets = self._places.get(valid)
        checks.add(self.start, valid, self._next if offsets is None else offsets[0])
        if damage is not None:
            checks.note_damage(*damage)
        elif checks.covers(0, segment.unchecked):
            segment.unchecked, segment.checks = 0, None

    def _wrong_epoch(self) -> tuple[int, str] | None:
        for position, (base, _, epoch) in self._places.items():
            cached = self._epochs.epoch_of(base)
            if cached not in (-1, epoch):
                return position, f"offset {base} is of leader epoch {cached}, not {epoch}"
        return None

    def _fits(self, index: SegmentIndex) -> bool:
        """Return whether the entries of the index in the checked range name batches found there."""
        first, end = (bisect_left(index.positions, at) for at in (self.start, self._valid))
        base = self._segment.base_offset
        return all(
            (offsets := self._places.get(index.positions[entry])) is not None
            and offsets[1] == base + index.offsets[entry]
            for entry in range(first, end)
        )


def _is_gapless(header: BatchHeader) -> bool:
    return header.last_offset - header.base_offset + 1 == header.records_count


def _read(file: File, position: int, size: int, end: int) -> bytes:
    return file.read_at(position, min(size, end - position))


def slice_of(segment: Segment, position: int, size: int, offset: int) -> LogSlice:
    """Return a slice of bytes that are older than the process; an `UncheckedSlice` if need be.

    It ends before known damage. Raises `CorruptLog` if nothing is left, and `OSError`.

    A batch need not begin at `position`, even in a checked range: the search may have followed a
    wrong batch length. Therefore the range from the anchor on must be checked.
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
    """Return the check that a range of whole batches needs before it is read, if any.

    Positions are in bytes. Raises `OSError` if the file cannot be opened.
    """
    checks = segment.checks
    if checks is None or not start < min(segment.unchecked, end) or checks.covers(start, end):
        return None
    part = UncheckedSlice(segment.open(), start, end - start, segment, -1)
    return CheckJob(part, start, -1, epochs)


def refuse_damaged(segment: Segment, start: int, end: int) -> None:
    """Raise `CorruptLog` if a batch in a range of whole batches is known to be damaged."""
    checks = segment.checks
    damage = None if checks is None else checks.damage_in(start, end)
    if damage is not None:
        raise CorruptLog(segment.path(LOG), *damage)


def begin_check(part: UncheckedSlice, epochs: EpochCache) -> CheckJob:
    """Return a job that checks the slice and will release it. Raises `CorruptLog` or `OSError`."""
    segment = part.segment
    assert segment.checks is not None
    start, expected = _anchor(segment, segment.checks, part.position, part.offset)
    return CheckJob(part, start, expected, epochs)


def _anchor(segment: Segment, checks: Checks, position: int, offset: int) -> tuple[int, int]:
    """Return where a batch begins at or before `position`, and the offset due there (or -1).

    That is not after the index entry from which `position` was found for `offset`. It is before
    `position`, unless a batch is known to begin there: a reader must get the very next batch.
    """
    end, expected = checks.last_end(position)
    if end == position:
        return end, expected
    begun = min(segment.entry_before(position), segment.entry_for(offset))
    if end >= begun and (checks.covers(begun, end) or begun == end):
        return end, expected if end else segment.base_offset
    return begun, -1
