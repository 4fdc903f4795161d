"""The loop that Numba compiles. It is valid Python, so it can be read and tested without Numba.

`lakelog.records.record` describes the layout. Every number is checked before it is used as a
position: compiled code has no bounds checks.
"""

from __future__ import annotations

from typing import Any

CORRUPT = -1

_VARINT_SHIFT_MAX = 63
_RECORD_MIN = 6


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


def scan(
    data: Any,
    count: int,
    last_delta: int,
    base_offset: int,
    base_timestamp: int,
    start: int,
    end: int,
    offsets: Any,
    timestamps: Any,
    key_ends: Any,
    key_nulls: Any,
    keys: Any,
    value_ends: Any,
    value_nulls: Any,
    values: Any,
    header_starts: Any,
    header_stops: Any,
    row: int,
) -> int:
    """Append the records of one batch with offsets in [start, end) after row `row`.

    Return the new number of rows, or `CORRUPT`. `key_ends` and `value_ends` are Arrow's offsets.
    Columns whose arrays are empty are left out. The headers of a record are noted by the bytes
    where they start and stop; without headers the start is -1. Timestamps are in milliseconds
    since the epoch. Raises nothing, because compiled code cannot: `CORRUPT` stands for a damaged
    batch.
    """
    size = len(data)
    position = 0
    previous = -1
    with_keys, with_values = len(keys) > 0, len(values) > 0
    with_times, with_headers = len(timestamps) > 0, len(header_starts) > 0
    key_end = int(key_ends[row]) if with_keys else 0
    value_end = int(value_ends[row]) if with_values else 0
    for _ in range(count):
        position, time_delta, delta, key_start, key_size, value_start, value_size, headers = (
            record_at(data, position, size)
        )
        # Offsets must rise within the batch: a duplicate would become two rows of one offset.
        if position < 0 or delta <= previous or delta > last_delta:
            return CORRUPT
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
    return row if position == size else CORRUPT


def count_headers(data: Any, starts: Any, stops: Any, counts: Any) -> int:
    """Set `counts` to the number of headers of each record, and return their sum.

    starts, stops: as `scan` has noted them, so that the headers are consistent.
    """
    total = 0
    for row in range(len(starts)):
        counts[row] = 0
        if starts[row] >= 0:
            count, _ = number_at(data, int(starts[row]), int(stops[row]))
            counts[row] = count
            total += count
    return total


def copy_headers(
    data: Any,
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
    pair, key_end, value_end = 0, 0, 0
    for row in range(len(starts)):
        if starts[row] < 0:
            continue
        stop = int(stops[row])
        count, position = number_at(data, int(starts[row]), stop)
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
