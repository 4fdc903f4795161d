"""Batches of one partition that arrived together and are appended with one write.

All batches of a client's group are of one idempotent producer, or of producers that are not. Each
is valid and continues the sequence of the one before it, and all fit into the active segment. The
first batch that does not qualify ends the group; `Log.append` accepts it alone or finds its error.

The bytes of fetched batches lie one after the other in the leader's response, as they will in the
segment. The leader has validated the records. A follower checks the bytes and their place in the
log, so that neither a damaged transfer nor a confused leader can damage its copy. Batches of a
group are of the log's latest leader epoch and belong to no transaction; `Log.append_fetched`
appends others alone or finds their error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lakelog.base.config.keys.topics import LONG_MAX, PAGE_CACHE, VERIFY_ALL
from lakelog.base.config.log_config import LogConfig
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
    PLACE,
    TRANSACTIONAL,
    BatchHeader,
    CorruptRecord,
    HeaderFields,
    check_crc,
    read_header,
)
from lakelog.runtime.api import Buffer
from lakelog.storage.producers.state import SEQUENCE_MAX, ProducerEntry, ProducerStateTable
from lakelog.storage.segments.segment import Segment
from lakelog.storage.validation import CRC_START, LeastSizes

_LEAST_SIZES = LeastSizes(0)
RELATIVE_OFFSET_MAX = 0x7FFFFFFF
"""The largest distance of an offset from the segment's base that an index can hold."""


def can_coalesce(config: LogConfig) -> bool:
    """Return whether batches may be appended in groups under these settings.

    Their headers must suffice to validate them, and their append must need no flush.
    """
    return (
        config.compression_type == "producer"
        and config.message_timestamp_type == "CreateTime"
        and config.message_timestamp_before_max_ms == LONG_MAX
        and "compact" not in config.cleanup_policy
        and config.records_verify != VERIFY_ALL
        and config.durability == PAGE_CACHE
        and config.flush_messages == LONG_MAX
    )


def coalesce(
    batches: Sequence[memoryview],
    config: LogConfig,
    segment: Segment,
    end_offset: int,
    producers: ProducerStateTable,
    leader_epoch: int,
    now_ms: int,
) -> tuple[list[HeaderFields], list[int], ProducerEntry | None]:
    """Find the group, and write its offsets and leader epoch into its batches.

    Return the received headers, the assigned offsets, and the group's idempotent producer.
    `segment` is the active one; `end_offset` is the log's end, where the first offset is due.
    Raises nothing for an invalid batch: the group ends before it, and `Log.append` reports it.
    """
    unpack, pack, checksum = HEADER.unpack_from, PLACE.pack_into, checksums.crc32c
    headers: list[HeaderFields] = []
    offsets: list[int] = []
    offset, capacity = end_offset, config.segment_bytes - segment.size
    size_max, offset_max = config.max_message_bytes, segment.base_offset + RELATIVE_OFFSET_MAX
    timestamp_max = min(now_ms + config.message_timestamp_after_max_ms, segment.roll_after - 1)
    producer, expected = None, (-1, -1, -1)
    for batch in batches:
        size = len(batch)
        if size < HEADER_SIZE:
            break
        header: HeaderFields = unpack(batch)
        base, length, _, magic, crc, attributes, delta, _, timestamp, owner, epoch, first, count = (
            header
        )
        capacity -= size
        if (
            length + LENGTH_OVERHEAD != size
            or size > size_max
            or magic != MAGIC
            or base
            or delta + 1 != count
            or delta < 0
            or count * _LEAST_SIZES[attributes] > size - HEADER_SIZE
            or timestamp > timestamp_max
            or offset + delta > offset_max
            or capacity < 0
            or checksum(batch[CRC_START:], 0) != crc
        ):
            break
        if headers:
            if (owner, epoch, first) != expected:
                break
        elif owner >= 0:
            producer = producers.expecting(header)
            if producer is None:
                break
        pack(batch, 0, offset, length, leader_epoch)
        headers.append(header)
        offsets.append(offset)
        offset += count
        expected = owner, epoch, first if producer is None else first + count & SEQUENCE_MAX
    return headers, offsets, producer


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


def read_fetched(batch: Buffer, end_offset: int, latest_epoch: int) -> BatchHeader:
    """Return the header of a batch that may follow at `end_offset`, the end of the log.

    `latest_epoch` is the leader epoch of the log's last batch, -1 for an empty log.

    Raises `CorruptRecord` for a batch that is torn or altered, has another magic, begins below the
    end of the log, or is of an older leader epoch than the batch before it.
    """
    header = read_header(batch)
    if header.size != len(batch) or header.magic != MAGIC or not check_crc(batch, 0, header):
        raise CorruptRecord(f"the batch at offset {header.base_offset} arrived damaged")
    if header.base_offset < end_offset or header.last_offset_delta < 0:
        raise CorruptRecord(
            f"a batch of offsets {header.base_offset} to {header.last_offset} "
            f"where the log ends at {end_offset}"
        )
    if header.partition_leader_epoch < max(latest_epoch, 0):
        raise CorruptRecord(
            f"the batch at offset {header.base_offset} is of leader epoch "
            f"{header.partition_leader_epoch}, after records of epoch {latest_epoch}"
        )
    return header
