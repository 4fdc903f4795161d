"""Coalesced batches: batches of one partition that arrived together and are appended with one
write.

All batches of a group are of one idempotent producer, or of producers that are not. Each is valid
and continues the sequence of the one before it, and all fit into the active segment. The first
batch that does not qualify ends the group; `Log.append` accepts it alone or finds its error.
"""

from __future__ import annotations

from collections.abc import Sequence

from lakelog.base.config.keys.topics import LONG_MAX, PAGE_CACHE, VERIFY_ALL
from lakelog.base.config.log_config import LogConfig
from lakelog.records import crc as checksums
from lakelog.records.batch import HEADER, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, PLACE, HeaderFields
from lakelog.storage.producers.state import SEQUENCE_MAX, ProducerEntry, ProducerStateTable
from lakelog.storage.segments.segment import Segment
from lakelog.storage.validation.batches import CRC_START, LeastSizes

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
