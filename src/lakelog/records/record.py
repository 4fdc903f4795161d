"""The records inside a batch.

The layout of a record; numbers are zig-zag varints, except for attributes, an unused byte:

    length, attributes, timestamp delta, offset delta, key length (-1: null), key,
    value length (-1: null), value, header count, (key length, key, value length, value)*

Decoding validates every length: a record must have exactly its declared length, the batch must end
with its last record, and offsets must rise and lie within the batch.

`iter_heads` reads offset, timestamp and presence of the key without decoding the rest: a record is
skipped by the length at its start. The skipped parts are not validated.

Keys of headers are decoded as in Java's clients. Java replaces invalid UTF-8 by U+FFFD instead of
rejecting it, so that every consumer can read a record with such a key. Python's `errors="replace"`
returns the same text, except for encoded surrogates: Java replaces a complete or truncated
surrogate by a single character.

Source: https://kafka.apache.org/documentation/#record.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import NamedTuple

from lakelog.records.batch import HEADER_SIZE, MAGIC, BatchHeader, CorruptRecord
from lakelog.records.compression import Codec, decompress
from lakelog.records.flat import flat
from lakelog.records.varint import read_varint
from lakelog.runtime.api import Buffer

_ERRORS = "lakelog-java"
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def decode_text(data: bytes) -> str:
    """Return the text, with U+FFFD in place of invalid UTF-8. Never raises."""
    return data.decode("utf-8", _ERRORS)


def _replace(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    data, start = error.object, error.start
    if data[start] == 0xED and 0xA0 <= _at(data, start + 1) <= 0xBF:
        return _REPLACEMENT, start + (3 if 0x80 <= _at(data, start + 2) <= 0xBF else 2)
    return _REPLACEMENT, error.end


def _at(data: bytes, position: int) -> int:
    return data[position] if position < len(data) else -1


codecs.register_error(_ERRORS, _replace)


Headers = tuple[tuple[str, bytes | None], ...]

NULL = 1
"""The encoding of the size -1."""
MIN_RECORD_SIZE = 7
"""The minimum size of a record in bytes, without key, value and headers."""


class Record(NamedTuple):
    """One record of a log. `timestamp` is in milliseconds since the Unix epoch."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def decode_records(batch: Buffer, header: BatchHeader, max_bytes: int) -> list[Record]:
    """Return the records of one complete batch, decompressed to at most `max_bytes` bytes.

    Records of a LogAppendTime batch have the batch's timestamp. The checksum is not checked.
    Raises `CorruptRecord` for any inconsistency.
    """
    return read_records(record_bytes(batch, header, max_bytes), header)


def read_records(data: bytes, header: BatchHeader) -> list[Record]:
    """Return the records in the result of `record_bytes`. Raises `CorruptRecord`."""
    try:
        records = _decode(data, header)
    except IndexError:
        raise CorruptRecord("a record is cut off") from None
    if header.timestamp_type:
        time = header.max_timestamp
        return [record._replace(timestamp=time) for record in records]
    return records


def record_bytes(batch: Buffer, header: BatchHeader, max_bytes: int) -> bytes:
    """Return the decompressed bytes after the header, at most `max_bytes`.

    Raises `CorruptRecord`, also for an impossible record count, and `RecordsTooLarge`.
    """
    return bytes(record_view(batch, header, max_bytes))


def record_view(batch: Buffer, header: BatchHeader, max_bytes: int) -> bytes | memoryview:
    """Return the bytes of `record_bytes`, without a copy if the batch is not compressed.

    Raises `CorruptRecord` and `RecordsTooLarge` as `record_bytes`.
    """
    if header.magic != MAGIC:
        raise CorruptRecord(f"magic {header.magic} is not supported")
    if len(batch) != header.size:
        raise CorruptRecord(f"{len(batch)} bytes for a batch of {header.size}")
    data: bytes | memoryview = memoryview(batch)[HEADER_SIZE:]
    if header.codec != Codec.NONE:
        data = decompress(header.codec, data, max_bytes)
    elif len(data) > max_bytes:
        raise CorruptRecord(f"{len(data)} bytes of records, more than {max_bytes}")
    # Callers allocate a list for the declared count, so it must be possible.
    count = header.records_count
    if not 0 <= count <= len(data) // MIN_RECORD_SIZE:
        raise CorruptRecord(f"{count} records cannot fit into {len(data)} bytes")
    if header.last_offset_delta < count - 1:
        raise CorruptRecord(f"{count} records for a last delta of {header.last_offset_delta}")
    return data


@flat
def read_head(data: bytes, position: int) -> tuple[int, int, int, int]:
    """Return the end of the record at `position`, its deltas of time (ms) and offset.

    The last number is the position of its key. Raises as `read_varint`.
    """
    length, position = read_varint(data, position)
    end = position + length
    position += 1
    delta_ms, position = read_varint(data, position)
    delta, position = read_varint(data, position)
    return end, delta_ms, delta, position


@flat
def read_field(data: bytes, position: int, name: str) -> tuple[bytes | None, int]:
    """Return the key or value at `position`, and its end. Raises as `read_varint`."""
    if data[position] == NULL:
        return None, position + 1
    else:
        size, position = read_varint(data, position)
        if size >= 0:
            return data[position : position + size], position + size
        elif size == -1:
            return None, position
        else:
            raise CorruptRecord(f"a {name} of {size} bytes")


@flat
def _decode(data: bytes, header: BatchHeader) -> list[Record]:
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    records: list[Record] = []
    append, new, position, previous = records.append, tuple.__new__, 0, -1
    for _ in range(header.records_count):
        end, delta_ms, delta, position = read_head(data, position)
        key, position = read_field(data, position, "key")
        value, position = read_field(data, position, "value")
        if data[position]:
            headers, position = read_headers(data, position, end)
        else:
            headers, position = (), position + 1
        if position != end or delta <= previous:
            raise CorruptRecord(f"record {len(records)} of the batch is inconsistent")
        previous = delta
        append(new(Record, (base_offset + delta, base_timestamp + delta_ms, key, value, headers)))
    if position != len(data) or previous > header.last_offset_delta:
        raise CorruptRecord("the records do not end where the batch does")
    return records


def read_headers(data: bytes, position: int, end: int) -> tuple[Headers, int]:
    """Return the headers of the record that ends at `end`, and the position after them.

    As in Java, invalid UTF-8 in keys is replaced by U+FFFD. Raises `CorruptRecord`.
    """
    count, position = read_varint(data, position)
    if not 0 <= count <= (end - position) // 2:
        raise CorruptRecord(f"{count} headers cannot fit into {end - position} bytes")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        key, position = _read_bytes(data, position, end)
        value, position = _read_bytes(data, position, end)
        if key is None:
            raise CorruptRecord("a header without a key")
        headers.append((decode_text(key), value))
    return tuple(headers), position


def _read_bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    size, position = read_varint(data, position)
    if size == -1:
        return None, position
    if not 0 <= size <= end - position:
        raise CorruptRecord(f"a header of {size} bytes does not fit")
    return data[position : position + size], position + size


RecordHead = tuple[int, int, bool]
"""Offset, timestamp (ms), and whether the record has a key."""


def iter_heads(data: bytes | memoryview, header: BatchHeader) -> Iterator[RecordHead]:
    """Yield the heads of the records in `record_view`.

    Records of a LogAppendTime batch have the batch's timestamp. Raises `CorruptRecord` when it
    reaches an inconsistent record.
    """
    try:
        yield from _walk_heads(bytes(data), header)
    except IndexError:
        raise CorruptRecord("a record is cut off") from None


@flat
def _walk_heads(data: bytes, header: BatchHeader) -> Iterator[RecordHead]:
    base, base_ms = header.base_offset, header.base_timestamp
    by_broker, newest_ms = header.timestamp_type, header.max_timestamp
    position, previous = 0, -1
    for number in range(header.records_count):
        end, delta_ms, delta, position = read_head(data, position)
        # A record ends after its head, and offsets rise: compaction and searches rely on both.
        if not position < end or delta <= previous:
            raise CorruptRecord(f"record {number} of the batch is inconsistent")
        time_ms = newest_ms if by_broker else base_ms + delta_ms
        yield base + delta, time_ms, data[position] != NULL
        position, previous = end, delta
    if position != len(data) or previous > header.last_offset_delta:
        raise CorruptRecord("the records do not end where the batch does")
