"""Offset, timestamp and presence of the key of each record, without decoding it.

A record is skipped by the length at its start, so that value and headers cost nothing. Records are
read one by one, on demand. The skipped parts are not validated; decoding the records does that.

Layout: `lakelog.records.record`.
"""

from __future__ import annotations

from collections.abc import Iterator

from lakelog.records.batch import BatchHeader
from lakelog.records.errors import CorruptRecord
from lakelog.records.varint import read_varint

RecordHead = tuple[int, int, bool]
"""Offset, timestamp (ms), and whether the record has a key."""


def iter_heads(data: bytes | memoryview, header: BatchHeader) -> Iterator[RecordHead]:
    """Yield the heads of the records in `record_view`.

    Records of a LogAppendTime batch have the batch's timestamp. Raises `CorruptRecord` when it
    reaches an inconsistent record.
    """
    try:
        yield from _walk(bytes(data), header)
    except IndexError:
        raise CorruptRecord("a record is cut off") from None


def _walk(data: bytes, header: BatchHeader) -> Iterator[RecordHead]:
    """Frequent varints are decoded inline: offsets of up to three bytes, other numbers of one.

    `zig` is a number in zig-zag encoding: odd values are negative.
    """
    base, base_ms = header.base_offset, header.base_timestamp
    by_broker, newest_ms = header.timestamp_type, header.max_timestamp
    start, previous = 0, -1
    for number in range(header.records_count):
        zig = data[start]
        if zig < 0x80:
            position = start + 2
            end = start + 1 + (zig >> 1)
        else:
            size, position = read_varint(data, start)
            end = position + size
            position += 1
        zig = data[position]
        if zig < 0x80:
            delta_ms, position = zig >> 1 ^ -(zig & 1), position + 1
        else:
            delta_ms, position = read_varint(data, position)
        delta = data[position]
        if delta < 0x80:
            delta, position = delta >> 1 ^ -(delta & 1), position + 1
        elif (high := data[position + 1]) < 0x80:
            delta = delta & 0x7F | high << 7
            delta, position = delta >> 1 ^ -(delta & 1), position + 2
        elif (highest := data[position + 2]) < 0x80:
            delta = delta & 0x7F | (high & 0x7F) << 7 | highest << 14
            delta, position = delta >> 1 ^ -(delta & 1), position + 3
        else:
            delta, position = read_varint(data, position)
        # A record ends after its head, and offsets rise: compaction and searches rely on both.
        if not position < end or delta <= previous:
            raise CorruptRecord(f"record {number} of the batch is inconsistent")
        time_ms = newest_ms if by_broker else base_ms + delta_ms
        yield base + delta, time_ms, data[position] != 1
        start, previous = end, delta
    if start != len(data) or previous > header.last_offset_delta:
        raise CorruptRecord("the records do not end where the batch does")
