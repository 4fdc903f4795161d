"""Verification of the records of a batch: every length, offset and count.

It detects everything that a consumer rejects: records of a wrong length, offsets that do not rise
by one, and a wrong record count in the header. It accepts everything that consumers ignore:
attributes of records, header keys that are not UTF-8, and varints with unnecessary bytes.

Layout: `lakelog.records.record`.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

from lakelog.records.batch import BatchHeader
from lakelog.records.errors import CorruptRecord
from lakelog.records.varint import read_varint

STEP = 500
"""The number of records or headers in one step, about half a millisecond."""
_INT_BYTES_MAX = 5
_NULL = 1
"""The encoding of the length -1."""


class Extremes(NamedTuple):
    """Extremes of the verified records; timestamps of CreateTime, in milliseconds."""

    oldest_ms: int
    newest_ms: int
    has_null_key: bool


def verifying(
    data: bytes | memoryview, header: BatchHeader, records_max: int
) -> Generator[None, None, Extremes]:
    """Verify the records in `record_view`; each step takes as long as `STEP` records or headers.

    At most `records_max` records and as many headers are verified; further headers are skipped.
    Raises `CorruptRecord`.
    """
    assert records_max > 0, "a batch without verified records has no extremes"
    try:
        return (yield from _walk(bytes(data), header, records_max))
    except IndexError:
        raise CorruptRecord("a record is cut off") from None


def _walk(  # noqa: C901 - calls cost too much
    data: bytes, header: BatchHeader, records_max: int
) -> Generator[None, None, Extremes]:
    """Varints of one or two bytes are decoded inline; a longer one counts like a record.

    `zig` is a number in zig-zag encoding: odd values are negative. `end` is the record's end.
    """
    end = oldest = newest = 0
    left, headers, has_null_key = STEP, records_max, False
    for number in range(min(header.records_count, records_max)):
        # The budget falls with each slow varint as well. So the time of a step is bounded for
        # every encoding, not only its number of records.
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
        # Consumers add this offset to that of the batch and commit the sum. A wrong one would make
        # them skip records or read them twice.
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
        # The lengths of a record and of its fields must agree: a client that trusts one of them
        # would read another record than a client that trusts the other.
        if position != end:
            raise CorruptRecord(f"record {number} of the batch does not end where it says")
    if header.records_count <= records_max and end != len(data):
        raise CorruptRecord("the records do not end where the batch does")
    base = header.base_timestamp
    return Extremes(base + oldest, base + newest, has_null_key)


def _skip_headers(
    data: bytes, position: int, end: int, left: int, headers_max: int
) -> Generator[None, None, tuple[int, int, int]]:
    """Return the end of a record's headers, and the rests of the step and of `headers_max`.

    Headers beyond `headers_max` are not verified.
    """
    count, position = _read_size(data, position)
    # A header takes two bytes at least. The check precedes the loop, so a false count costs nothing
    # (CVE-2022-34917).
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
    """Return the end of the bytes whose length is at `position`."""
    size, position = _read_size(data, position)
    return position + size


def _read_size(data: bytes, position: int) -> tuple[int, int]:
    """Return a non-negative number and the position after it."""
    size, end = read_varint(data, position)
    if size < 0 or end - position > _INT_BYTES_MAX:
        raise CorruptRecord(f"a length of {size} in {end - position} bytes")
    return size, end
