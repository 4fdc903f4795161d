"""The loops that Numba compiles. They are valid Python, so they can be tested without Numba.

`lakelog.records.record` describes the layout. Every number is checked before it is used as a
position: compiled code has no bounds checks.

The loops take all batches of a group at once, as a table of int64 with a row of `BATCH_FIELDS` for
each: a call from Python takes as long as the decoding of a hundred small records. The compiler
copies the functions that `scan` calls into it.
"""

from __future__ import annotations

import ctypes
from typing import Any

CORRUPT = -1

ADDRESS, SIZE, COUNT, LAST_DELTA, BASE_OFFSET, BASE_TIMESTAMP, APPEND_TIMESTAMP, IS_APPEND_TIME = (
    range(8)
)
"""The columns of the table of batches: where the records are, decompressed, and numbers of the
header. `IS_APPEND_TIME` is 1 if all records have the `APPEND_TIMESTAMP`."""

_VARINT_SHIFT_MAX = 63
_RECORD_MIN = 6
_WORD = 8
_LONG = 8


def number_at(data: Any, position: int, stop: int) -> tuple[int, int]:
    """Return the zig-zag varint at `position` and its end, or an end of -1 if it exceeds `stop`."""
    if position < stop and data[position] < 0x80:
        byte = int(data[position])
        return byte >> 1 ^ -(byte & 1), position + 1
    number = 0
    shift = 0
    while position < stop and shift <= _VARINT_SHIFT_MAX:
        byte = int(data[position])
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1 & 0x7FFFFFFFFFFFFFFF) ^ -(number & 1), position
        shift += 7
    return 0, -1


def headers_end(data: Any, position: int, stop: int) -> int:
    """Return where the headers at `position` end; `CORRUPT` if they are inconsistent.

    The first number is their count, each is a key and a value or a null (-1) for a value. Positions
    are in bytes.
    """
    count, position = number_at(data, position, stop)
    if position < 0 or not 0 <= count <= (stop - position) // 2:
        return CORRUPT
    for _ in range(count):
        size, position = number_at(data, position, stop)
        if position < 0 or not 0 <= size <= stop - position:
            return CORRUPT
        size, position = number_at(data, position + size, stop)
        if position < 0 or not -1 <= size <= stop - position:
            return CORRUPT
        position += max(size, 0)
    return position


def view_at(address: int, size: int) -> Any:
    """Return the bytes at an address, which the caller keeps alive. Compiled, this is free."""
    return (ctypes.c_ubyte * size).from_address(address)


def word_at(data: Any, at: int) -> int:
    """Return 8 bytes as a little-endian number. Compiled, this is a single load."""
    assert 0 <= at <= len(data) - _WORD, "compiled code does not check it"
    return int.from_bytes(bytes(data[at : at + _WORD]), "little", signed=True)


def copy(target: Any, at: int, source: Any, start: int, size: int) -> None:
    """Copy `size` bytes from `start` to `at`. Compiled, this is a single `memcpy`."""
    target[at : at + size] = source[start : start + size]


def record_at(data: Any, position: int, size: int) -> tuple[int, int, int, int, int, int, int, int]:
    """Return the layout of the record at `position` in data of `size` bytes.

    The numbers are: where the record ends (`CORRUPT` if it is inconsistent); the deltas of its
    timestamp and offset; start and size of its key and of its value (a size of -1 is null); and
    where its headers start (-1 if it has none). Source: version 2 of Kafka's record format
    (KIP-98).
    """
    bad = CORRUPT, 0, 0, 0, 0, 0, 0, 0
    length, position = number_at(data, position, size)
    if position < 0 or not _RECORD_MIN <= length <= size - position:
        return bad
    stop = position + length
    time_delta, position = number_at(data, position + 1, stop)
    if position < 0:
        return bad
    delta, position = number_at(data, position, stop)
    if position < 0:
        return bad
    key_size, key_start = number_at(data, position, stop)
    if key_start < 0 or not -1 <= key_size <= stop - key_start:
        return bad
    value_size, value_start = number_at(data, key_start + max(key_size, 0), stop)
    if value_start < 0 or not -1 <= value_size <= stop - value_start:
        return bad
    header_start = value_start + max(value_size, 0)
    if header_start >= stop:
        return bad
    if data[header_start] == 0:
        position, header_start = header_start + 1, -1
    else:
        position = headers_end(data, header_start, stop)
    if position != stop:
        return bad
    return stop, time_delta, delta, key_start, key_size, value_start, value_size, header_start


def short_number(word: int) -> tuple[int, int]:
    """Return the zig-zag varint in the lowest bytes of a word and its size.

    The size is `_LONG` if it has more than two bytes.
    """
    if word & 0x80 == 0:
        return word >> 1 & 0x3F ^ -(word & 1), 1
    if word & 0x8000 == 0:
        zig = word & 0x7F | word >> 1 & 0x3F80
        return zig >> 1 ^ -(zig & 1), 2
    return 0, _LONG


def short_record_at(
    data: Any, position: int, size: int
) -> tuple[int, int, int, int, int, int, int, int]:
    """Return the same as `record_at` if each number has at most two bytes, else `CORRUPT`.

    Records of up to 8 KB in batches of up to 8,192 records are such. Whole words are read, so this
    also leaves out records within a word of the end, and corrupt ones.
    """
    bad = CORRUPT, 0, 0, 0, 0, 0, 0, 0
    if size - position < _WORD:
        return bad
    word = word_at(data, position)
    length, taken = short_number(word)
    if taken == _LONG or length < _RECORD_MIN:
        return bad
    at = position + taken
    stop = at + length
    word >>= 8 * taken + 8
    time_delta, taken = short_number(word)
    if taken == _LONG:
        return bad
    at += 1 + taken
    delta, taken = short_number(word >> 8 * taken)
    at += taken
    if taken == _LONG or stop > size or size - at < _WORD:
        return bad
    word = word_at(data, at)
    key_size, taken = short_number(word)
    key_start = at + taken
    at = key_start + max(key_size, 0)
    if taken == _LONG or key_size < -1 or size - at < _WORD:
        return bad
    value_size, taken = short_number(word_at(data, at))
    value_start = at + taken
    at = value_start + max(value_size, 0)
    if taken == _LONG or value_size < -1 or at + 1 != stop or data[at] != 0:
        return bad
    return stop, time_delta, delta, key_start, key_size, value_start, value_size, -1


def scan(  # noqa: C901 - calls with arrays cost too much
    batches: Any,
    start: int,
    end: int,
    offsets: Any,
    timestamps: Any,
    types: Any,
    key_ends: Any,
    key_nulls: Any,
    keys: Any,
    value_ends: Any,
    value_nulls: Any,
    values: Any,
    header_starts: Any,
    header_stops: Any,
    row_ends: Any,
) -> int:
    """Write the records of all batches with offsets in [start, end).

    Return the number of rows, or `CORRUPT` less the number of the first damaged batch. `key_ends`
    and `value_ends` are Arrow's offsets, whose first number is set. Columns whose arrays are empty
    are left out. The headers of a record are noted by the bytes of the batch where they start and
    stop; without headers the start is -1. Timestamps are in milliseconds since the epoch.
    row_ends: is set to the number of rows after each batch.
    """
    row, key_end, value_end = 0, 0, 0
    with_keys, with_values, with_headers = len(keys) > 0, len(values) > 0, len(header_starts) > 0
    with_times, with_types = len(timestamps) > 0, len(types) > 0
    for batch in range(len(batches)):
        size = int(batches[batch, SIZE])
        data = view_at(int(batches[batch, ADDRESS]), size)
        base_offset = int(batches[batch, BASE_OFFSET])
        base_timestamp = int(batches[batch, BASE_TIMESTAMP])
        last_delta = int(batches[batch, LAST_DELTA])
        is_append_time = int(batches[batch, IS_APPEND_TIME])
        first, position, previous = row, 0, -1
        for _ in range(int(batches[batch, COUNT])):
            record_start = position
            record = short_record_at(data, record_start, size)
            if record[0] == CORRUPT:
                record = record_at(data, record_start, size)
            position, time_delta, delta, key_start, key_size, value_start, value_size, headers = (
                record
            )
            # Offsets must rise within the batch: a duplicate would become two rows of one offset.
            if position == CORRUPT or delta <= previous or delta > last_delta:
                return CORRUPT - batch
            previous = delta
            offset = base_offset + delta
            if start <= offset < end:
                offsets[row] = offset
                if with_times:
                    timestamps[row] = base_timestamp + time_delta
                if with_headers:
                    header_starts[row] = headers
                    header_stops[row] = position
                if with_keys:
                    key_nulls[row] = key_size < 0
                    if key_size > 0:
                        copy(keys, key_end, data, key_start, key_size)
                        key_end += key_size
                    key_ends[row + 1] = key_end
                if with_values:
                    value_nulls[row] = value_size < 0
                    if value_size > 0:
                        copy(values, value_end, data, value_start, value_size)
                        value_end += value_size
                    value_ends[row + 1] = value_end
                row += 1
        if position != size:
            return CORRUPT - batch
        row_ends[batch] = row
        if with_types:
            types[first:row] = is_append_time
        if with_times and is_append_time:
            timestamps[first:row] = batches[batch, APPEND_TIMESTAMP]
    return row


def count_headers(batches: Any, row_ends: Any, starts: Any, stops: Any, counts: Any) -> int:
    """Set `counts` to the number of headers of each record, and return their sum.

    row_ends, starts, stops: as `scan` has noted them, so that the headers are consistent.
    """
    total = row = 0
    for batch in range(len(batches)):
        data = view_at(int(batches[batch, ADDRESS]), int(batches[batch, SIZE]))
        while row < row_ends[batch]:
            counts[row] = 0
            if starts[row] >= 0:
                count, _ = number_at(data, int(starts[row]), int(stops[row]))
                counts[row] = count
                total += count
            row += 1
    return total


def copy_headers(
    batches: Any,
    row_ends: Any,
    starts: Any,
    stops: Any,
    key_ends: Any,
    keys: Any,
    value_ends: Any,
    value_nulls: Any,
    values: Any,
) -> None:
    """Copy keys and values of all headers, one after the other; see `count_headers`.

    `key_ends` and `value_ends` are Arrow's offsets, whose first number is set.
    """
    row, pair, key_end, value_end = 0, 0, 0, 0
    for batch in range(len(batches)):
        data = view_at(int(batches[batch, ADDRESS]), int(batches[batch, SIZE]))
        while row < row_ends[batch]:
            position, stop = int(starts[row]), int(stops[row])
            row += 1
            if position < 0:
                continue
            count, position = number_at(data, position, stop)
            for _ in range(count):
                size, position = number_at(data, position, stop)
                if size > 0:
                    copy(keys, key_end, data, position, size)
                    key_end += size
                size, position = number_at(data, position + size, stop)
                value_nulls[pair] = size < 0
                if size > 0:
                    copy(values, value_end, data, position, size)
                    value_end += size
                    position += size
                pair += 1
                key_ends[pair] = key_end
                value_ends[pair] = value_end
