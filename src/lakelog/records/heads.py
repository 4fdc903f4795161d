"""Offset, timestamp and presence of the key of each record, without decoding it.

A record is skipped by the length at its start, so that value and headers cost nothing. Records are
read one by one, on demand. The skipped parts are not validated; decoding the records does that.

Layout: `lakelog.records.record`.
"""

from __future__ import annotations

from collections.abc import Iterator

from lakelog.records.batch import BatchHeader
from lakelog.records.errors import CorruptRecord
from lakelog.records.flat import flat
from lakelog.records.record import NULL, read_head

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


@flat
def _walk(data: bytes, header: BatchHeader) -> Iterator[RecordHead]:
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
