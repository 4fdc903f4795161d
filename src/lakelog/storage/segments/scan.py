"""Walks the batches of a segment file by their headers, without reading the records."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain, repeat

from lakelog.records.batch import HEADER_SIZE, BatchHeader, CorruptRecord, read_header
from lakelog.runtime.api import File
from lakelog.storage.errors import CorruptLog

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


def tell_misplaced(
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
