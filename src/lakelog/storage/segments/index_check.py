"""Whether what the index files of a segment say is true of its log, and what follows from it.

They may be of a log that was cut since, or lack what was not written in time. Where a function
changes a segment's counts, they are as its file has them if it returns true; if not, the indexes
are to be rebuilt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakelog.runtime.api import File
from lakelog.storage.errors import CorruptLog
from lakelog.storage.indexes.index_files import IndexFiles
from lakelog.storage.indexes.segment_index import SegmentIndex
from lakelog.storage.segments.scan import SPAN, scan_headers

if TYPE_CHECKING:
    from lakelog.storage.segments.indexed_segment import IndexedSegment

LAST_BYTES_MAX = 1 << 20
"""Bytes behind the last index entry whose headers the loop reads; behind a true one are less, but
for larger batches."""


def resume(segment: IndexedSegment, index: SegmentIndex) -> bool:
    """Takes up the counts where the last entries end; false if those are not of this log.

    The last time entry tells the greatest timestamp only of the batches up to its own, so the
    scan begins there.
    """
    segment.max_timestamp = segment.max_timestamp_offset = -1
    segment.bytes_since_entry = 0
    last_entry = index.positions[-1] if index.positions else 0
    floor = index.floor(index.time_offsets[-1]) if index.times else -1
    if not is_true(segment, index, floor) or not is_true(segment, index, len(index.offsets) - 1):
        return False
    file = segment.open().file
    time_found, segment.max_timestamp, segment.max_timestamp_offset = _scan_times(
        file, index, segment.base_offset
    )
    for position, header in scan_headers(file, last_entry, segment.size):
        if header.last_offset == segment.max_timestamp_offset:
            time_found = time_found or header.newest_timestamp == segment.max_timestamp
        segment.note_header(position, header)
    return time_found


def _scan_times(file: File, index: SegmentIndex, base_offset: int) -> tuple[bool, int, int]:
    """Reads the headers from the batch of the last time entry to that of the last index entry.

    Returns whether one is what the time entry says, the greatest timestamp, and the last offset of
    the batch that has it. These are as many batches as there are where the newest record came
    first. Raises as `scan_headers`.
    """
    start, end = index.last_time_position, (index.positions[-1] if index.positions else 0)
    found, greatest, at = not index.times, -1, -1
    if index.times:
        greatest, at = index.times[-1], base_offset + index.time_offsets[-1]
    for _, header in scan_headers(file, start, end):
        if header.last_offset == at:
            found = found or header.newest_timestamp == greatest
        if header.newest_timestamp > greatest:
            greatest, at = header.newest_timestamp, header.last_offset
    return found, greatest, at


def is_true(segment: IndexedSegment, index: SegmentIndex, entry: int) -> bool:
    """Whether the batch at an entry's position is the one it names."""
    if entry < 0:
        return True
    window = segment.open().file.read_at(index.positions[entry], SPAN.size)
    if len(window) < SPAN.size:
        return False
    base, _, delta = SPAN.unpack(window)
    return bool(base + delta == segment.base_offset + index.offsets[entry])


def follow(segment: IndexedSegment, start: int, last_offset: int, interval: int) -> bool:
    """Reads on from the last index entry; false if it is wrong or later ones are missing.

    One is missing behind a batch whose offsets are above those that follow: the way to whatever is
    appended would end there.
    """
    segment.bytes_since_entry = 0
    if not 0 <= start <= segment.size:
        return False
    for position, header in scan_headers(segment.open().file, start, segment.size):
        wrong = position == start and last_offset >= 0 and header.last_offset != last_offset
        wrong |= header.base_offset < segment.next_offset
        if wrong or segment.bytes_since_entry > interval:
            return False
        segment.bytes_since_entry += header.size
        segment.next_offset = header.last_offset + 1
        if header.newest_timestamp > segment.max_timestamp:
            segment.max_timestamp = header.newest_timestamp
            segment.max_timestamp_offset = header.last_offset
    return start < segment.size or not segment.size


def learn_greatest(segment: IndexedSegment, files: IndexFiles) -> bool:
    """Finds the greatest timestamp without the whole index, if time rose with the offsets.

    The last time entry is the greatest up to its batch, if that batch is what it says; what
    follows is scanned, unless that is more than `LAST_BYTES_MAX`.
    """
    entry, time = files.read_last()
    if entry is None or time is None or time[1] < entry[0]:
        return False
    found, greatest = False, (-1, -1)
    if not 0 <= entry[1] < segment.size <= entry[1] + LAST_BYTES_MAX:
        return False
    try:
        for _, header in scan_headers(segment.open().file, entry[1], segment.size):
            if header.last_offset - segment.base_offset == time[1]:
                found = header.newest_timestamp == time[0]
            if header.newest_timestamp > greatest[0]:
                greatest = header.newest_timestamp, header.last_offset
    except CorruptLog:
        return False
    if found and greatest[0] >= time[0]:
        segment.max_timestamp, segment.max_timestamp_offset = greatest
    return found
