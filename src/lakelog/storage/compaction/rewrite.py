"""Rewriting a batch that loses records.

It keeps its offsets, leader epoch, producer, sequence and codec. With a delete horizon (KIP-534)
that time replaces the base timestamp, and the records' timestamps are relative to it.

Source: `MemoryRecords.filterTo` and `DefaultRecordBatch.writeEmptyHeader` of Apache Kafka.
"""

from __future__ import annotations

from lakelog.records import crc
from lakelog.records.batch import (
    CONTROL,
    DELETE_HORIZON,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
)
from lakelog.records.compression import compress
from lakelog.storage.compaction.records import Selection, join, move_timestamps

_KEPT_WHEN_EMPTY = LOG_APPEND_TIME | TRANSACTIONAL | CONTROL
_CRC_AT = slice(17, 21)
_NO_TIMESTAMP = -1


def delete_horizon(header: BatchHeader) -> int | None:
    """Return when (ms) the batch's tombstones, or its marker, expire; `None` before a cleaning."""
    return header.base_timestamp if header.has_delete_horizon else None


def emptied(header: BatchHeader) -> bytes:
    """Return the batch without records, with its offsets, producer and sequence.

    The broker needs them to detect a repeated or missing batch of that producer after a restart.
    Source: `DefaultRecordBatch.writeEmptyHeader` of Kafka.
    """
    attributes = header.attributes & _KEPT_WHEN_EMPTY
    return _assemble(header, attributes, _NO_TIMESTAMP, header.max_timestamp, 0, b"")


def rebuilt(header: BatchHeader, data: bytes, kept: Selection, horizon: int | None) -> bytes:
    """Return the batch with the `kept` part of its records `data`, compressed as before.

    horizon: a new delete horizon in milliseconds since the epoch (KIP-534); `None` to keep the
    present base timestamp.
    """
    records = data if kept.ranges == [(0, len(data))] else join(data, kept.ranges)
    by_broker = header.attributes & LOG_APPEND_TIME
    newest = header.base_timestamp + kept.max_delta_ms
    if by_broker or header.is_control:
        # The broker set it, so it does not follow from the kept records.
        newest = header.max_timestamp
    base, attributes = header.base_timestamp, header.attributes
    if horizon is not None:
        attributes |= DELETE_HORIZON
        # With LogAppendTime all records have the batch's greatest timestamp, whatever their deltas.
        by_ms = horizon - (newest if by_broker else base)
        records = move_timestamps(records, kept.records_count, by_ms, bool(by_broker))
        base = horizon
    content = compress(header.codec, records) if header.codec else records
    return _assemble(header, attributes, base, newest, kept.records_count, content)


def _assemble(
    header: BatchHeader, attributes: int, base: int, newest: int, count: int, content: bytes
) -> bytes:
    batch = bytearray(
        HEADER.pack(
            header.base_offset,
            HEADER_SIZE - LENGTH_OVERHEAD + len(content),
            header.partition_leader_epoch,
            MAGIC,
            0,
            attributes,
            header.last_offset_delta,
            base,
            newest,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            count,
        )
    )
    batch += content
    batch[_CRC_AT] = crc.crc32c(memoryview(batch)[21:]).to_bytes(4, "big")
    return bytes(batch)
