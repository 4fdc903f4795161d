"""Walks the batches of a segment file by their headers, without reading the records.

With them it compares index files: a file may be of a log that was cut since, or lack entries that
were not written in time. So its last entries are compared with the batches that they name, and the
batches behind them are read. `IndexKeeper` applies the results.

Offsets of entries are relative to the base offset of the segment. Positions and sizes are in bytes,
timestamps in milliseconds. Nothing is changed here; all functions raise `OSError`.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, repeat
from typing import NamedTuple

from lakelog.records.batch import HEADER_SIZE, BatchHeader, CorruptRecord, read_header
from lakelog.runtime.api import File
from lakelog.storage.errors import CorruptLog
from lakelog.storage.segments.segment_index import SegmentIndex

SPAN = struct.Struct(">qi11xi")
"""Base offset, batch length and last offset delta of a batch header."""
_WINDOW = 4096
_TOLD_BY = 2
"""Number of following batches that show whether a batch's base offset is too high."""


def scan_headers(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of each batch from byte `position` to byte `end`.

    A batch must begin at both. Raises `OSError`, and `CorruptLog` for a header that is none and for
    a batch that reaches past `end`.
    """
    window, start = b"", position
    while position < end:
        at = position - start
        if at + HEADER_SIZE > len(window):
            window, start, at = file.read_at(position, min(_WINDOW, end - position)), position, 0
        try:
            header = read_header(window, at)
        except CorruptRecord as error:
            raise CorruptLog(file.path, position, str(error)) from error
        following = position + header.size
        if following > end:
            raise CorruptLog(file.path, position, f"a batch of {header.size} bytes is cut off")
        yield position, header
        position = following


def scan_batches(
    read: Callable[[int, int], bytes], end: int, window_bytes: int
) -> Iterator[tuple[int, BatchHeader, bytes, int]]:
    """Yield position and header of each batch up to byte `end`, with bytes that contain the batch.

    The last number is where it begins in these bytes. `read` is called with a position and the
    number of bytes wanted there, which is `window_bytes` unless a batch is larger.

    Raises `CorruptRecord` for a header that is none and for a batch that reaches past `end`.
    """
    window, start, position = b"", 0, 0
    while position < end:
        at = position - start
        if at + HEADER_SIZE > len(window):
            window, start, at = read(position, min(window_bytes, end - position)), position, 0
        header = read_header(window, at)
        if header.size > end - position:
            raise CorruptRecord(f"a batch of {header.size} bytes is cut off")
        if at + header.size > len(window):
            window, start, at = read(position, max(window_bytes, header.size)), position, 0
        yield position, header, window, at
        position += header.size


def mark_misplaced(
    batches: Iterable[tuple[int, BatchHeader]], base_offset: int
) -> Iterator[tuple[int, BatchHeader, bool]]:
    """Add to each batch of a segment whether its base offset is wrong.

    No checksum covers the base offset. It is wrong if it does not follow the last right batch. It
    is also wrong if the batch overlaps one of the next two batches, unless no offset is missing
    before the batch and in it. The next batch alone is not enough evidence: its own base offset may
    be too high as well.
    """
    due = base_offset
    held: deque[tuple[int, BatchHeader]] = deque()
    for batch in chain(batches, repeat(None, _TOLD_BY)):
        if batch is not None:
            held.append(batch)
        if held and (batch is None or len(held) > _TOLD_BY):
            position, header = held.popleft()
            is_wrong = _is_misplaced(header, due, [later.base_offset for _, later in held])
            yield position, header, is_wrong
            due = due if is_wrong else header.last_offset + 1


def _is_misplaced(header: BatchHeader, due: int, following: Iterable[int]) -> bool:
    first, last = header.base_offset, header.last_offset
    if not due <= first <= last:
        return True
    is_whole = first == due and last - first + 1 == header.records_count
    return not is_whole and any(due <= offset <= last for offset in following)


LAST_BYTES_MAX = 1 << 20
"""Bytes behind the last index entry whose headers the loop reads. Behind a true entry there are
fewer, unless batches are larger."""


class Tail(NamedTuple):
    """The state of a segment at its end, as appends have left it."""

    next_offset: int
    bytes_since_entry: int
    max_timestamp: int
    max_timestamp_offset: int
    """Last offset of the earliest batch with `max_timestamp`."""


def is_true(file: File, base_offset: int, index: SegmentIndex, entry: int) -> bool:
    """Return whether the batch at an entry's position is the one it names; -1 is no entry."""
    if entry < 0:
        return True
    window = file.read_at(index.positions[entry], SPAN.size)
    # The entry lies beyond the end of the log: it is of a log that was cut since.
    if len(window) < SPAN.size:
        return False
    base, _, delta = SPAN.unpack(window)
    return bool(base + delta == base_offset + index.offsets[entry])


def scan_times(file: File, index: SegmentIndex, base_offset: int) -> tuple[bool, int, int]:
    """Read the headers from the batch of the last time entry to that of the last index entry.

    Return whether one agrees with the time entry, the greatest timestamp, and the last offset of
    its batch. These are all batches of the segment where the newest record came first.
    Raises as `scan_headers`.
    """
    start, end = index.last_time_position, (index.positions[-1] if index.positions else 0)
    agrees, greatest, at = not index.times, -1, -1
    if index.times:
        greatest, at = index.times[-1], base_offset + index.time_offsets[-1]
    for _, header in scan_headers(file, start, end):
        if header.last_offset == at:
            agrees = agrees or header.newest_timestamp == greatest
        if header.newest_timestamp > greatest:
            greatest, at = header.newest_timestamp, header.last_offset
    return agrees, greatest, at


def follow(
    file: File, size: int, start: int, last_offset: int, interval: int, state: Tail
) -> Tail | None:
    """Read on from the last index entry; return None if it is wrong or later ones are missing.

    An entry is missing behind a batch whose offsets are above the following ones: a search for
    any record appended later would end there.

    start, last_offset: of the entry; 0 and -1 without one.
    interval: bytes of batches after which an append adds an entry.
    state: before `start`, except `bytes_since_entry`.

    Raises as `scan_headers`.
    """
    if not 0 <= start <= size:
        return None
    next_offset, since, greatest, at = state.next_offset, 0, *state[2:]
    for position, header in scan_headers(file, start, size):
        wrong = position == start and last_offset >= 0 and header.last_offset != last_offset
        # Offsets that fall are damage, or an entry that leads to a batch of an older log.
        wrong |= header.base_offset < next_offset
        if wrong or since > interval:
            return None
        since += header.size
        next_offset = header.last_offset + 1
        if header.newest_timestamp > greatest:
            greatest, at = header.newest_timestamp, header.last_offset
    return Tail(next_offset, since, greatest, at) if start < size or not size else None


def greatest_at_end(
    file: File,
    size: int,
    base_offset: int,
    entry: tuple[int, int],
    time: tuple[int, int],
) -> tuple[int, int] | None:
    """Return the greatest timestamp and its offset without the whole index, if time rose with them.

    The last time entry has the greatest timestamp up to its batch, if it agrees with the batch.
    The bytes after it are scanned, unless they are more than `LAST_BYTES_MAX`. None if only the
    whole index shows it.

    entry: the last index entry, relative offset and position.
    time: the last time entry, timestamp and relative offset.
    """
    if time[1] < entry[0]:
        return None
    # The loop calls this, so it reads a bounded number of headers.
    if not 0 <= entry[1] < size <= entry[1] + LAST_BYTES_MAX:
        return None
    agrees, greatest = False, (-1, -1)
    try:
        for _, header in scan_headers(file, entry[1], size):
            if header.last_offset - base_offset == time[1]:
                agrees = header.newest_timestamp == time[0]
            if header.newest_timestamp > greatest[0]:
                greatest = header.newest_timestamp, header.last_offset
    # Damage behind the entry: a rebuild of the index decides about it.
    except CorruptLog:
        return None
    return greatest if agrees else None
