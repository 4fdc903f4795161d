"""Scan of a segment after an unclean stop, which cuts off an invalid tail.

Below the recovery point everything was on the device, so an invalid batch there is corruption, and
recovery changes nothing. At or above it a batch may be half written: recovery cuts the log there
and keeps the cut bytes in `<base>.<position>.cut`, to be examined by the operator. Later segments
are kept as a whole, as `<base>.0.cut`.

After a failed sync, the page cache may hold pages that the device lost, and count them as clean.
Recovery then drops clean pages, so that it reads from the device. Otherwise the page cache is
trusted, as by all other reads: it will write its dirty pages, or the next sync fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import NamedTuple

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
from lakelog.storage.files import LOG, SEGMENT_SUFFIXES, cut_name, remove_if_exists
from lakelog.storage.segments.scan import scan_batches
from lakelog.storage.segments.segment import Segment

_WINDOW = 1 << 20
_LENGTH_END = 12
"""Bytes of a batch up to the end of its length, which counts the bytes after it."""
_RELATIVE_MAX = 0x7FFFFFFF


class Cut(NamedTuple):
    """Bytes that recovery cut off a segment, and why."""

    position: int
    size: int
    reason: str
    is_torn: bool = False
    """Whether these are the beginning of one write, which a kill interrupted."""


class Bounds(NamedTuple):
    """Limits of fields that no checksum covers."""

    epoch_end: int
    """Every leader epoch is below it."""
    offset_end: int
    """Every offset is below it: the next segment's base, or the largest possible offset."""
    has_gaps: bool
    """Whether a compaction may have removed batches."""


def recover_segment(
    segment: Segment,
    recovery_point: int,
    breathe: Callable[[], None],
    bounds: Bounds,
    *,
    from_device: bool,
) -> Cut | None:
    """Check every batch, rebuild the indexes and truncate an invalid tail; return the cut, if any.

    `from_device` reads without the page cache, which is several times slower. Calls `breathe` for
    each megabyte; an exception of it ends the scan, which the next start repeats. Raises
    `CorruptLog` for an invalid batch below the recovery point, and `OSError`.
    """
    # Index files are written after the log and may contain entries of batches that were lost.
    segment.begin_rebuild()
    end = segment.size
    valid, reason = 0, ""
    try:
        file = segment.open().file
        if from_device:
            segment.disk.drop_cached(file)
        for position, header in _valid_batches(file, segment.base_offset, end, breathe, bounds):
            segment.note_header(position, header)
            valid = position + header.size
    except CorruptRecord as error:
        reason = str(error)
    if not reason:
        segment.note_checked()
        segment.end_rebuild()
        return None
    # Batches below the recovery point were synced: damage there is no torn write.
    if segment.next_offset < recovery_point:
        raise CorruptLog(segment.path(LOG), valid, reason)
    assert 0 <= valid < end
    is_torn = _is_torn(file, valid, end)
    # Copy the tail before truncating it: a kill in between leaves both.
    _keep_aside(segment, valid, end)
    # Only now: the tail is durable under its new name.
    segment.cut_at(valid)
    segment.note_checked()
    return Cut(valid, end - valid, reason, is_torn)


def _is_torn(file: File, position: int, end: int) -> bool:
    """Return whether the file ends within the batch at `position`.

    Its write has not returned, so no response acknowledged it and no follower has it.
    """
    start = file.read_at(position, _LENGTH_END)
    if len(start) < _LENGTH_END:
        return True
    return position + _LENGTH_END + int.from_bytes(start[-4:], "big", signed=True) > end


def set_aside(segment: Segment) -> int:
    """Remove a whole segment from the log but keep its bytes; return how many. Raises `OSError`."""
    disk = segment.disk
    segment.unload()
    for suffix in SEGMENT_SUFFIXES:
        if suffix != LOG:
            remove_if_exists(disk, segment.path(suffix))
    # The log last: index files without a log are removed by a start, a log without them is used.
    disk.rename(segment.path(LOG), segment.folder / cut_name(segment.base_offset, 0))
    return segment.size


def _valid_batches(
    file: File, base_offset: int, end: int, breathe: Callable[[], None], bounds: Bounds
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield each batch up to `end`. Raises `CorruptRecord` at the first invalid one."""
    next_offset = base_offset

    def read(position: int, size: int) -> bytes:
        breathe()
        return file.read_at(position, size)

    for position, header, window, at in scan_batches(read, end, _WINDOW):
        _check(window, at, header, base_offset)
        _check_bounds(header, next_offset, bounds)
        if header.base_offset > next_offset:
            # After a compaction, gaps are normal. Only the following batches show a wrong base
            # offset.
            _check_gap(header, file, position + header.size, end)
        yield position, header
        next_offset = header.last_offset + 1


def _check(window: bytes, at: int, header: BatchHeader, base_offset: int) -> None:
    if header.magic != MAGIC:
        raise CorruptRecord(f"magic {header.magic} is not known")
    if header.last_offset - base_offset > _RELATIVE_MAX:
        raise CorruptRecord(f"offset {header.last_offset} is too far from {base_offset}")
    if not check_crc(window, at, header):
        raise CorruptRecord(f"the checksum of offset {header.base_offset} does not match")


def _check_bounds(header: BatchHeader, next_offset: int, bounds: Bounds) -> None:
    first, last, epoch = header.base_offset, header.last_offset, header.partition_leader_epoch
    # Without compaction offsets have no gaps, so a gap is a lost or a misplaced batch.
    fits = first >= next_offset if bounds.has_gaps else first == next_offset
    if not fits or not first <= last < bounds.offset_end:
        raise CorruptRecord(f"offsets {first} to {last} where {next_offset} was due")
    if epoch >= bounds.epoch_end:
        raise CorruptRecord(f"leader epoch {epoch} of offset {first}")


def _check_gap(header: BatchHeader, file: File, position: int, end: int) -> None:
    """Raise `CorruptRecord` if the base offset of a batch after a gap is too high.

    The next batch, at `position`, shows it if it is valid and overlaps. If the offsets of both are
    too high, only the batch after them shows it.
    """
    for _ in range(2):
        try:
            following = read_header(file.read_at(position, min(HEADER_SIZE, end - position)), 0)
        except CorruptRecord:
            return
        if following.size > end - position:
            return
        if following.base_offset <= header.last_offset:
            # Only a batch with a valid checksum is evidence against the one before it. Garbage
            # behind a valid batch is a torn write, and must not condemn that batch.
            if check_crc(file.read_at(position, following.size), 0, following):
                last, first = header.last_offset, following.base_offset
                raise CorruptRecord(f"offset {last} is followed by {first}")
            return
        header, position = following, position + following.size


def _keep_aside(segment: Segment, position: int, end: int) -> None:
    """Copy the tail, durably, before it is cut off."""
    source = segment.open().file
    path = segment.folder / cut_name(segment.base_offset, position)
    with closing(segment.disk.open(path, create=True)) as target:
        target.truncate(0)
        for at in range(position, end, _WINDOW):
            target.write_at(at - position, source.read_at(at, min(_WINDOW, end - at)))
        target.sync()
    # The name of the copy must be durable too, or the truncation could outlive it.
    segment.disk.sync_dir(segment.folder)
