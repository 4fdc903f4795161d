"""Whether the records of a batch are what its header says: every length, offset and count.

What a consumer would stumble over is found: a record that does not end where its length says,
offsets that do not rise by one, fewer or more records than the header counts. What consumers do not
mind is left alone: attributes of records, header keys that are no text, numbers in more bytes than
they need.

Layout: `lakelog.records.record`.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

from lakelog.records.batch import BatchHeader
from lakelog.records.errors import CorruptRecord
from lakelog.records.varint import read_varint

STEP = 500
"""Records or headers that are looked at in one step: about half a millisecond."""
_INT_BYTES_MAX = 5
_NULL = 1
"""A length of -1 as it is encoded."""


class Extremes(NamedTuple):
    """Of the records that were looked at; times of CreateTime, in milliseconds."""

    oldest_ms: int
    newest_ms: int
    has_null_key: bool


def verifying(
    data: bytes | memoryview, header: BatchHeader, records_max: int
) -> Generator[None, None, Extremes]:
    """Goes through `record_view`; each step costs as much as a walk over `STEP` records or headers.

    Of neither more than `records_max`; headers beyond that are passed over. Raises `CorruptRecord`.
    """
    try:
        return (yield from _walk(bytes(data), header, records_max))
    except IndexError:
        raise CorruptRecord("a record is cut off") from None


def _walk(  # noqa: C901 - calls cost too much
    data: bytes, header: BatchHeader, records_max: int
) -> Generator[None, None, Extremes]:
    """Varints of one or two bytes are decoded in line; a longer one counts like a record.

    `zig` is a number before its sign is unfolded; an odd one is negative. `end` is the record's.
    """
    end = oldest = newest = 0
    left, headers, has_null_key = STEP, records_max, False
    for number in range(min(header.records_count, records_max)):
        if left <= 0:
            left = STEP
            yield
        left -= 1
        zig = data[end]
        if zig < 0x80 and not zig & 1:
            position, end = end + 2, end + 1 + (zig >> 1)
        elif (high := data[end + 1]) < 0x80 and not zig & 1:
            position, end = end + 3, end + 2 + ((zig & 0x7F | high << 7) >> 1)
        else:
            size, position = _read_size(data, end)
            position, end, left = position + 1, position + size, left - 1
        zig = data[position]
        if zig < 0x80:
            delta_ms, position = zig >> 1 ^ -(zig & 1), position + 1
        elif (high := data[position + 1]) < 0x80:
            zig = zig & 0x7F | high << 7
            delta_ms, position = zig >> 1 ^ -(zig & 1), position + 2
        else:
            (delta_ms, position), left = read_varint(data, position), left - 1
        if delta_ms > newest:
            newest = delta_ms
        elif delta_ms < oldest:
            oldest = delta_ms
        zig = data[position]
        if zig < 0x80:
            position += 1
        elif (high := data[position + 1]) < 0x80:
            zig, position = zig & 0x7F | high << 7, position + 2
        else:
            size, position = _read_size(data, position)
            zig, left = size << 1, left - 1
        if zig != number << 1:
            raise CorruptRecord(f"record {number} of the batch has another offset than its place")
        zig = data[position]
        if zig == _NULL:
            has_null_key, position = True, position + 1
        elif zig < 0x80 and not zig & 1:
            position += 1 + (zig >> 1)
        else:
            position, left = _skip_bytes(data, position), left - 1
        zig = data[position]
        if zig == _NULL:
            position += 1
        elif zig < 0x80 and not zig & 1:
            position += 1 + (zig >> 1)
        elif (high := data[position + 1]) < 0x80 and not zig & 1:
            position += 2 + ((zig & 0x7F | high << 7) >> 1)
        else:
            position, left = _skip_bytes(data, position), left - 1
        if data[position]:
            position, left, headers = yield from _skip_headers(data, position, end, left, headers)
        else:
            position += 1
        if position != end:
            raise CorruptRecord(f"record {number} of the batch does not end where it says")
    if header.records_count <= records_max and end != len(data):
        raise CorruptRecord("the records do not end where the batch does")
    base = header.base_timestamp
    return Extremes(base + oldest, base + newest, has_null_key)


def _skip_headers(
    data: bytes, position: int, end: int, left: int, headers_max: int
) -> Generator[None, None, tuple[int, int, int]]:
    """Where the headers of a record end, and what is then left of the step and of `headers_max`.

    Those beyond `headers_max` are believed.
    """
    count, position = _read_size(data, position)
    if count > (end - position) // 2:
        raise CorruptRecord(f"{count} headers cannot fit into {end - position} bytes")
    for _ in range(min(count, headers_max)):
        if left <= 0:
            left = STEP
            yield
        left -= 1
        position = _skip_bytes(data, position)
        if data[position] == _NULL:
            position += 1
        else:
            position = _skip_bytes(data, position)
        if position > end:
            raise CorruptRecord("a header does not fit into its record")
    return (position if count <= headers_max else end), left, max(headers_max - count, 0)


def _skip_bytes(data: bytes, position: int) -> int:
    """Where the bytes end whose length is at `position`."""
    size, position = _read_size(data, position)
    return position + size


def _read_size(data: bytes, position: int) -> tuple[int, int]:
    """A number that is not negative and where it ends."""
    size, end = read_varint(data, position)
    if size < 0 or end - position > _INT_BYTES_MAX:
        raise CorruptRecord(f"a length of {size} in {end - position} bytes")
    return size, end
