"""Conversion of a batch to another codec, for topics with a `compression.type`.

The records stay byte for byte; only their compression, the attributes and the checksum change.
Producer id, epoch and sequence stay, so that duplicates are still detected.
"""

from __future__ import annotations

from lakelog.records import crc
from lakelog.records.batch import CODEC_MASK, HEADER, HEADER_SIZE, LENGTH_OVERHEAD, BatchHeader
from lakelog.records.compression import compress
from lakelog.records.record import record_bytes
from lakelog.runtime.api import Buffer

_CRC_OFFSET = 17
_ATTRIBUTES_OFFSET = 21


def with_codec(batch: Buffer, header: BatchHeader, codec: int, max_bytes: int) -> bytearray:
    """Return a new batch; `max_bytes` limits the decompressed size of the records.

    The caller must have checked the checksum of `batch`, because the new checksum also matches
    damaged records. Raises `CorruptRecord` for records that cannot be decompressed, and
    `RecordsTooLarge`.
    """
    assert codec & ~CODEC_MASK == 0, "a codec fits into its bits of the attributes"
    content = compress(codec, record_bytes(batch, header, max_bytes))
    changed = bytearray(HEADER_SIZE)
    HEADER.pack_into(
        changed,
        0,
        header.base_offset,
        HEADER_SIZE - LENGTH_OVERHEAD + len(content),
        header.partition_leader_epoch,
        header.magic,
        0,
        header.attributes & ~CODEC_MASK | codec,
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.records_count,
    )
    changed += content
    checksum = crc.crc32c(memoryview(changed)[_ATTRIBUTES_OFFSET:])
    changed[_CRC_OFFSET:_ATTRIBUTES_OFFSET] = checksum.to_bytes(4, "big")
    return changed
