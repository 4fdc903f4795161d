"""Verification of the records of a batch: every length, offset and count.

It detects everything that a consumer rejects: records of a wrong length, offsets that do not rise
by one, and a wrong record count in the header. It accepts everything that consumers ignore:
attributes of records, header keys that are not UTF-8, and varints with unnecessary bytes.

Layout: `lakelog.records.record`.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

from lakelog.records.batch import BatchHeader, CorruptRecord
from lakelog.records.flat import flat
from lakelog.records.record import NULL
from lakelog.records.varint import LOW_BITS, read_varint

STEP = 500
"""The number of records or headers in one step, about half a millisecond."""
_INT_BYTES_MAX = 5
_SIZES = LOW_BITS[:0x80] + (-1,) * 0x80
"""Sizes of one byte; negative for first bytes of all other numbers."""


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


@flat
def _read_number(data: bytes, position: int, left: int) -> tuple[int, int, int]:
    """Return a size or offset, the position after it, and the rest of the step.

    A number of more than two bytes counts like a record, so that the time of a step is bounded for
    every encoding, and not only its number of records.
    """
    if (number := _SIZES[low := data[position]]) >= 0:
        return number, position + 1, left
    elif (high := data[position + 1]) < 0x80 and not low & 1:
        return LOW_BITS[low] + (high << 6), position + 2, left
    else:
        number, position = _read_long_number(data, position)
        return number, position, left - 1


def _read_long_number(data: bytes, position: int) -> tuple[int, int]:
    size, end = read_varint(data, position)
    if size < 0 or end - position > _INT_BYTES_MAX:
        raise CorruptRecord(f"a length of {size} in {end - position} bytes")
    return size, end


@flat
def _skip_field(data: bytes, position: int, left: int) -> tuple[int, int]:
    """Return the end of the key or value whose size is at `position`, and the rest of the step."""
    if data[position] == NULL:
        return position + 1, left
    else:
        number, position, left = _read_number(data, position, left)
        return position + number, left


@flat
def _walk(data: bytes, header: BatchHeader, records_max: int) -> Generator[None, None, Extremes]:
    position = oldest = newest = 0
    left, headers, has_null_key = STEP, records_max, False
    for index in range(min(header.records_count, records_max)):
        if left <= 0:
            left = STEP
            yield
        left -= 1
        number, position, left = _read_number(data, position, left)
        end = position + number
        position += 1
        delta_ms, position = read_varint(data, position)
        if delta_ms > newest:
            newest = delta_ms
        elif delta_ms < oldest:
            oldest = delta_ms
        number, position, left = _read_number(data, position, left)
        # Consumers add this offset to that of the batch and commit the sum. A wrong one would make
        # them skip records or read them twice.
        if number != index:
            raise CorruptRecord(f"record {index} of the batch has another offset than its place")
        if data[position] == NULL:
            has_null_key, position = True, position + 1
        else:
            number, position, left = _read_number(data, position, left)
            position += number
        position, left = _skip_field(data, position, left)
        if data[position]:
            position, left, headers = yield from _skip_headers(data, position, end, left, headers)
        else:
            position += 1
        # The lengths of a record and of its fields must agree: a client that trusts one of them
        # would read another record than a client that trusts the other.
        if position != end:
            raise CorruptRecord(f"record {index} of the batch does not end where it says")
    if header.records_count <= records_max and position != len(data):
        raise CorruptRecord("the records do not end where the batch does")
    base = header.base_timestamp
    return Extremes(base + oldest, base + newest, has_null_key)


@flat
def _skip_headers(
    data: bytes, position: int, end: int, left: int, headers_max: int
) -> Generator[None, None, tuple[int, int, int]]:
    """Return the end of a record's headers, and the rests of the step and of `headers_max`.

    Headers beyond `headers_max` are not verified.
    """
    count, position, left = _read_number(data, position, left)
    # A header takes two bytes at least. The check precedes the loop, so a false count costs nothing
    # (CVE-2022-34917).
    if count > (end - position) // 2:
        raise CorruptRecord(f"{count} headers cannot fit into {end - position} bytes")
    for _ in range(min(count, headers_max)):
        if left <= 0:
            left = STEP
            yield
        left -= 1
        number, position, left = _read_number(data, position, left)
        position += number
        position, left = _skip_field(data, position, left)
        if position > end:
            raise CorruptRecord("a header does not fit into its record")
    return (position if count <= headers_max else end), left, max(headers_max - count, 0)
