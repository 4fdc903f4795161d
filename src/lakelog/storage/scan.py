"""Walks the batches of a segment file by their headers, without reading the records."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from lakelog.records.batch import HEADER_SIZE, BatchHeader, CorruptRecord, read_header
from lakelog.runtime.api import File
from lakelog.storage.errors import CorruptLog

SPAN = struct.Struct(">qi11xi")
"""Base offset, batch length and last offset delta of a batch header."""
_WINDOW = 4096


def scan_headers(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each batch from `position` to `end`, which must both be boundaries.

    `CorruptLog` where no header can be, or a batch reaches past `end`.
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
