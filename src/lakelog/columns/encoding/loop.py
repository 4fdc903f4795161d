"""The loops that Numba compiles. They are valid Python, so they can be tested without Numba.

`plan` divides rows among batches and computes the size of each batch; `write` then fills buffers of
exactly these sizes. Rows without headers have None for them, so that Numba leaves out their parts.
The rows are checked before (`rows.py`), so there are no errors here.
`lakelog.records.record` describes the layout of a record, `lakelog.base.murmur2` the hash.
"""

from __future__ import annotations

from typing import Any

NO_PARTITION = -1
NULL = -1
"""The size of an item that is null."""

_MASK = 0xFFFFFFFF
_M = 0x5BD1E995
_SEED = 0x9747B28C
_SIGN_BIT_OFF = 0x7FFFFFFF
_WITHOUT_HIGH_BITS = 0x01FFFFFFFFFFFFFF
_HEADER_SIZE = 61
WORD = 8
"""Bytes that `put_word` writes; there must be as many at every position."""
_SHORT = 0x2000
"""Numbers below it, and not below its negative, have at most two bytes."""


def number_size(number: int) -> int:
    """Return the bytes of the zig-zag varint of a 64-bit number."""
    if -0x40 <= number < 0x40:
        return 1
    if -_SHORT <= number < _SHORT:
        return 2
    return long_number_size(number)


def long_number_size(number: int) -> int:
    """Return `number_size`. It is a function of its own so that the other one stays small."""
    rest = (number << 1) ^ (number >> 63)
    size = 1
    while rest & ~0x7F:
        rest = rest >> 7 & _WITHOUT_HIGH_BITS
        size += 1
    return size


def short_varint(number: int) -> tuple[int, int]:
    """Return the zig-zag varint of a number within `_SHORT` as a word, and its size."""
    zig = number << 1 ^ number >> 63
    if zig < 0x80:
        return zig, 1
    return zig & 0x7F | 0x80 | zig << 1 & 0x7F00, 2


def put_word(out: Any, at: int, word: int) -> None:
    """Write 8 bytes, little-endian. Compiled, this is a single store."""
    assert 0 <= at <= len(out) - WORD, "compiled code does not check it"
    out[at : at + WORD] = list(word.to_bytes(WORD, "little", signed=True))


def put_number(out: Any, at: int, number: int) -> int:
    """Write the zig-zag varint of a 64-bit number, and return the position after it."""
    if -0x40 <= number < 0x40:
        out[at] = number << 1 ^ number >> 63
        return at + 1
    rest = (number << 1) ^ (number >> 63)
    while rest & ~0x7F:
        out[at] = rest & 0x7F | 0x80
        rest = rest >> 7 & _WITHOUT_HIGH_BITS
        at += 1
    out[at] = rest
    return at + 1


def copy(target: Any, at: int, source: Any, start: int, size: int) -> None:
    """Copy `size` bytes from `start` to `at`. Compiled, this is a single `memcpy`."""
    target[at : at + size] = source[start : start + size]


def put_bytes(out: Any, at: int, data: Any, start: int, size: int) -> int:
    """Write a length and as many bytes from `start`; a size of -1 is null."""
    at = put_number(out, at, size)
    if size > 0:
        copy(out, at, data, start, size)
        at += size
    return at


def partition_of_key(data: Any, start: int, size: int, partitions: int) -> int:
    """Return the partition of a key as Java's producer computes it (murmur2)."""
    value = _SEED ^ size
    whole = size & ~3
    for index in range(start, start + whole, 4):
        k = int(data[index]) | int(data[index + 1]) << 8
        k |= int(data[index + 2]) << 16 | int(data[index + 3]) << 24
        k = k * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        value = (value * _M & _MASK) ^ k
    if size > whole:
        tail = 0
        for index in range(size - whole):
            tail |= int(data[start + whole + index]) << 8 * index
        value = (value ^ tail) * _M & _MASK
    value = (value ^ value >> 13) * _M & _MASK
    return ((value ^ value >> 15) & _SIGN_BIT_OFF) % partitions


def size_at(ends: Any, nulls: Any, row: int) -> int:
    """Return the size of an item in bytes; -1 for null, and for a column that does not exist."""
    if len(ends) == 0 or (len(nulls) > 0 and nulls[row]):
        return -1
    return int(ends[row + 1] - ends[row])


def headers_size(row: int, ends: Any, key_ends: Any, value_ends: Any, value_nulls: Any) -> int:
    """Return the bytes of a row's headers with their count."""
    first, last = int(ends[row]), int(ends[row + 1])
    size = number_size(last - first)
    for item in range(first, last):
        key = int(key_ends[item + 1] - key_ends[item])
        value = size_at(value_ends, value_nulls, item)
        size += number_size(key) + key + number_size(value) + max(value, 0)
    return size


def put_headers(
    out: Any,
    at: int,
    row: int,
    ends: Any,
    key_ends: Any,
    keys: Any,
    value_ends: Any,
    value_nulls: Any,
    values: Any,
) -> int:
    """Write a row's headers with their count, and return the position after them."""
    first, last = int(ends[row]), int(ends[row + 1])
    at = put_number(out, at, last - first)
    for item in range(first, last):
        start = int(key_ends[item])
        at = put_bytes(out, at, keys, start, int(key_ends[item + 1]) - start)
        size = size_at(value_ends, value_nulls, item)
        at = put_bytes(out, at, values, int(value_ends[item]) if size > 0 else 0, size)
    return at


def body_size(delta_ms: int, delta: int, key: int, value: int, headers: int) -> int:
    """Return the bytes of a record after its length. `headers` is `headers_size`."""
    numbers = number_size(delta_ms) + number_size(delta) + number_size(key) + number_size(value)
    return 1 + numbers + max(key, 0) + max(value, 0) + headers


def plan(  # noqa: C901 - calls with arrays cost too much
    count: int,
    key_ends: Any,
    key_nulls: Any,
    keys: Any,
    value_ends: Any,
    value_nulls: Any,
    header_ends: Any,
    header_key_ends: Any,
    header_value_ends: Any,
    header_value_nulls: Any,
    timestamps: Any,
    row_partitions: Any,
    partitions: int,
    sticky: int,
    batch_bytes: int,
    open_batches: Any,
    batch_of: Any,
    partition_of: Any,
    counts: Any,
    sizes: Any,
    base_times: Any,
    newest_times: Any,
    bodies: Any,
) -> tuple[int, int]:
    """Divide the rows among batches. Return the number of batches and the next sticky partition.

    row_partitions: partitions, `NO_PARTITION` where the key decides; empty for none. sticky: the
    partition of rows without a key. batch_bytes: a batch with a record does not exceed it.
    open_batches: for each partition -1; afterwards its last batch. batch_of, bodies: are set to the
    batch of each row, and to the bytes of its record after the length. The other five are set for
    each batch: its partition, records, bytes with header, and times in ms.
    """
    batches = 0
    with_keys, with_partitions = len(key_ends) > 0, len(row_partitions) > 0
    with_null_keys, with_null_values = len(key_nulls) > 0, len(value_nulls) > 0
    for row in range(count):
        key = value = NULL
        if with_keys and not (with_null_keys and key_nulls[row]):
            key = int(key_ends[row + 1]) - int(key_ends[row])
        if not (with_null_values and value_nulls[row]):
            value = int(value_ends[row + 1]) - int(value_ends[row])
        headers = 1
        if header_ends is not None:
            headers = headers_size(
                row, header_ends, header_key_ends, header_value_ends, header_value_nulls
            )
        partition = int(row_partitions[row]) if with_partitions else NO_PARTITION
        is_sticky = partition == NO_PARTITION and key < 0
        if is_sticky:
            partition = sticky
        elif partition == NO_PARTITION:
            partition = partition_of_key(keys, int(key_ends[row]), key, partitions)
        time = int(timestamps[row])
        batch = int(open_batches[partition])
        body = size = 0
        while batch >= 0:
            body = body_size(time - int(base_times[batch]), int(counts[batch]), key, value, headers)
            size = number_size(body) + body
            if int(sizes[batch]) + size <= batch_bytes:
                break
            open_batches[partition] = -1
            if partition == sticky:
                sticky = (sticky + 1) % partitions
            if is_sticky:
                partition = sticky
            batch = int(open_batches[partition])
        if batch < 0:
            body = body_size(0, 0, key, value, headers)
            size = number_size(body) + body
            batch = batches
            batches += 1
            open_batches[partition] = batch
            partition_of[batch] = partition
            counts[batch] = 0
            sizes[batch] = _HEADER_SIZE
            base_times[batch] = time
            newest_times[batch] = time
        batch_of[row] = batch
        bodies[row] = body
        counts[batch] += 1
        sizes[batch] += size
        newest_times[batch] = max(int(newest_times[batch]), time)
    if open_batches[sticky] >= 0:
        sticky = (sticky + 1) % partitions
    return batches, sticky


def write(  # noqa: C901 - calls with arrays cost too much
    count: int,
    key_ends: Any,
    key_nulls: Any,
    keys: Any,
    value_ends: Any,
    value_nulls: Any,
    values: Any,
    header_ends: Any,
    header_key_ends: Any,
    header_keys: Any,
    header_value_ends: Any,
    header_value_nulls: Any,
    header_values: Any,
    timestamps: Any,
    batch_of: Any,
    bodies: Any,
    base_times: Any,
    deltas: Any,
    positions: Any,
    out: Any,
) -> None:
    """Write the rows that `plan` divided into `out`.

    deltas: zeros, one for each batch. positions: where the first record of each batch goes;
    afterwards the end of the batch. Up to `WORD` bytes after the end of a record are changed: these
    are of the next record, of the header of the next batch, or after all batches.
    """
    with_keys = len(key_ends) > 0
    with_null_keys, with_null_values = len(key_nulls) > 0, len(value_nulls) > 0
    # The batch of the last row, whose numbers are in the arrays only after the next other batch.
    batch, at, delta, base_time = -1, 0, 0, 0
    for row in range(count):
        if batch != batch_of[row]:
            if batch >= 0:
                positions[batch], deltas[batch] = at, delta
            batch = int(batch_of[row])
            at, delta = int(positions[batch]), int(deltas[batch])
            base_time = int(base_times[batch])
        key = value = NULL
        key_start, value_start = 0, int(value_ends[row])
        if with_keys and not (with_null_keys and key_nulls[row]):
            key_start = int(key_ends[row])
            key = int(key_ends[row + 1]) - key_start
        if not (with_null_values and value_nulls[row]):
            value = int(value_ends[row + 1]) - value_start
        body, time = int(bodies[row]), int(timestamps[row]) - base_time
        if body < _SHORT and delta < _SHORT and -_SHORT <= time < _SHORT:
            word, size = short_varint(body)
            short, taken = short_varint(time)
            word |= short << 8 * size + 8
            size += taken + 1
            short, taken = short_varint(delta)
            put_word(out, at, word | short << 8 * size)
            at += size + taken
            short, taken = short_varint(key)
            put_word(out, at, short)
            at += taken
            if key > 0:
                copy(out, at, keys, key_start, key)
                at += key
            short, taken = short_varint(value)
            put_word(out, at, short)
            at += taken
            if value > 0:
                copy(out, at, values, value_start, value)
                at += value
        else:
            at = put_number(out, at, body)
            out[at] = 0
            at = put_number(out, at + 1, time)
            at = put_number(out, at, delta)
            at = put_bytes(out, at, keys, key_start, key)
            at = put_bytes(out, at, values, value_start, value)
        out[at] = 0
        at += 1
        if header_ends is not None:
            at = put_headers(
                out,
                at - 1,
                row,
                header_ends,
                header_key_ends,
                header_keys,
                header_value_ends,
                header_value_nulls,
                header_values,
            )
        delta += 1
    if batch >= 0:
        positions[batch] = at
