"""What can be told of the records of a batch without decoding them: where, when, with a key or not.

A record is passed over by the length that it begins with, so its value and its headers cost
nothing, however many it says it has. Nothing is made of a record before it is asked for. What is
not looked at is not checked either: that is for whoever decodes the records.

Layout: `lakelog.records.record`.
"""

from __future__ import annotations

from collections.abc import Iterator

from lakelog.records.batch import BatchHeader
from lakelog.records.errors import CorruptRecord
from lakelog.records.varint import read_varint

RecordHead = tuple[int, int, bool]
"""Offset, timestamp (ms), and whether there is a key."""


def iter_heads(data: bytes | memoryview, header: BatchHeader) -> Iterator[RecordHead]:
    """One by one from `record_view`. `CorruptRecord` where they are inconsistent, when it gets
    there. The timestamp of a LogAppendTime batch is the batch's.
    """
    try:
        yield from _walk(bytes(data), header)
    except IndexError:
        raise CorruptRecord("a record is cut off") from None


def _walk(data: bytes, header: BatchHeader) -> Iterator[RecordHead]:
    """The common varints are decoded in line: offsets of up to three bytes, the others of one.

    `zig` is a number before its sign is unfolded; an odd one is negative.
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
        if not position < end or delta <= previous:
            raise CorruptRecord(f"record {number} of the batch is inconsistent")
        time_ms = newest_ms if by_broker else base_ms + delta_ms
        yield base + delta, time_ms, data[position] != 1
        start, previous = end, delta
    if start != len(data) or previous > header.last_offset_delta:
        raise CorruptRecord("the records do not end where the batch does")
