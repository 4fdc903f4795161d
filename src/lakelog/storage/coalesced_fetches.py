"""Groups of fetched batches, each of which a follower appends with one write.

Their bytes lie one after the other in the leader's response, as they will in the segment. Each is
checked as `read_fetched` checks one, is of the log's latest leader epoch, belongs to no
transaction, and fits into the active segment. The first batch that does not qualify ends the group;
`Log.append_fetched` appends it alone or finds its error.
"""

from __future__ import annotations

from collections.abc import Iterable

from lakelog.records import crc as checksums
from lakelog.records.batch import (
    BASE_OFFSET,
    BASE_SEQUENCE,
    CONTROL,
    HEADER,
    HEADER_SIZE,
    LAST_OFFSET_DELTA,
    LENGTH_OVERHEAD,
    MAGIC,
    MAX_TIMESTAMP,
    TRANSACTIONAL,
    HeaderFields,
)
from lakelog.storage.coalesced_batches import RELATIVE_OFFSET_MAX
from lakelog.storage.producers.state import ProducerEntry, ProducerStateTable
from lakelog.storage.segments.segment import Segment
from lakelog.storage.validation.batches import CRC_START

_NOT_PLAIN = CONTROL | TRANSACTIONAL


def coalesce_fetched(
    records: memoryview,
    segment: Segment,
    end_offset: int,
    segment_bytes: int,
    latest_epoch: int,
    producers: ProducerStateTable,
) -> tuple[int, list[HeaderFields], list[ProducerEntry | None]]:
    """Return the group at the start of `records`: its size in bytes, which may be 0, and its
    headers.

    The third result is the producer of each batch, None for a batch without a producer id.
    segment: the active one, with its indexes loaded; it may take `segment_bytes`.
    end_offset: the end of the log, below which no batch may begin.
    latest_epoch: the leader epoch of the log's last batch.
    """
    unpack, checksum, entries = HEADER.unpack_from, checksums.crc32c, producers.entries
    headers: list[HeaderFields] = []
    batch_producers: list[ProducerEntry | None] = []
    position, capacity = 0, min(len(records), segment_bytes - segment.size)
    left, last_max = segment.indexes.entries_left, segment.base_offset + RELATIVE_OFFSET_MAX
    while capacity - position >= HEADER_SIZE and left > 0:
        fields: HeaderFields = unpack(records, position)
        base, length, epoch, magic, crc, attributes, delta, _, timestamp, owner, age, _, _ = fields
        end = position + length + LENGTH_OVERHEAD
        entry = entries.get(owner) if owner >= 0 else None
        if (
            length + LENGTH_OVERHEAD < HEADER_SIZE
            or end > capacity
            or magic != MAGIC
            or epoch != latest_epoch
            or attributes & _NOT_PLAIN
            or base < end_offset
            or delta < 0
            or base + delta > last_max
            or timestamp >= segment.roll_after
            or (owner >= 0 and (entry is None or entry.epoch != age))
            or checksum(records[position + CRC_START : end], 0) != crc
        ):
            break
        headers.append(fields)
        batch_producers.append(entry)
        position, end_offset, left = end, base + delta + 1, left - 1
    return position, headers, batch_producers


def note_producers(
    headers: Iterable[HeaderFields], producers: Iterable[ProducerEntry | None]
) -> None:
    """Note the batches of a group with their producers, once they are in the log."""
    for entry, fields in zip(producers, headers, strict=True):
        if entry is not None:
            base, delta = fields[BASE_OFFSET], fields[LAST_OFFSET_DELTA]
            entry.add(fields[BASE_SEQUENCE], delta, base + delta, fields[MAX_TIMESTAMP])
