"""The loop that Numba compiles; plain Python, so that it can be read and tested without it.

`lakelog.records.record` describes the layout. Every number is checked before it is used as a
position: compiled code has no bounds checks.
"""

from __future__ import annotations

from typing import Any

CORRUPT = -1

_VARINT_SHIFT_MAX = 63


def copy(target: Any, at: int, source: Any, start: int, size: int) -> None:
    """`size` bytes from `start` to `at`; with slices from 0 the compiler sees that no index is
    negative and copies whole words."""
    to, out_of = target[at:], source[start:]
    for index in range(size):
        to[index] = out_of[index]


def scan(  # noqa: C901 - compiled as one function, calls into it would need their own cache
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
    """Appends the records of one batch with offsets in [start, end) behind row `row`.

    Returns the number of rows then, or `CORRUPT`. `key_ends` and `value_ends` are Arrow's offsets.
    A record with headers gets where they start and stop; looking into them is left to the caller.
    """
    size = len(data)
    position = 0
    previous = -1
    key_end, value_end = int(key_ends[row]), int(value_ends[row])
    for _ in range(count):
        stop = size
        time_delta = 0
        delta = 0
        key_start = key_size = value_start = value_size = 0
        # the varints of a record in their order: length, time, offset, key size, value size
        for field in range(5):
            number = 0
            shift = 0
            while True:
                if position >= stop or shift > _VARINT_SHIFT_MAX:
                    return CORRUPT
                byte = int(data[position])
                position += 1
                number |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += 7
            number = (number >> 1 & 0x7FFFFFFFFFFFFFFF) ^ -(number & 1)
            if field == 0:
                if number < 6 or number > size - position:
                    return CORRUPT
                stop = position + number
                position += 1
            elif field == 1:
                time_delta = number
            elif field == 2:
                delta = number
            elif field == 3:
                key_start, key_size = position, number
                if number < -1 or number > stop - position:
                    return CORRUPT
                position += max(number, 0)
            else:
                value_start, value_size = position, number
                if number < -1 or number > stop - position:
                    return CORRUPT
                position += max(number, 0)
        has_headers = position < stop and data[position] != 0
        if position >= stop or (not has_headers and position + 1 != stop):
            return CORRUPT
        if delta <= previous or delta > last_delta:
            return CORRUPT
        previous = delta
        offset = base_offset + delta
        if start <= offset < end:
            offsets[row] = offset
            timestamps[row] = base_timestamp + time_delta
            header_starts[row] = position if has_headers else -1
            header_stops[row] = stop
            key_nulls[row] = key_size < 0
            copy(keys, key_end, data, key_start, key_size)
            key_end += max(key_size, 0)
            key_ends[row + 1] = key_end
            value_nulls[row] = value_size < 0
            copy(values, value_end, data, value_start, value_size)
            value_end += max(value_size, 0)
            value_ends[row + 1] = value_end
            row += 1
        position = stop
    return row if position == size else CORRUPT
