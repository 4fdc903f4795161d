"""Producer snapshot files: the newest batch of every producer, up to the offset in the name.

    0 version i16 (1)   2 CRC-32C u32 of byte 6 on   6 count i32
    then per producer:
    0 id i64   8 epoch i16   10 last sequence i32   14 last offset i64   22 offset delta i32
    26 timestamp i64   34 coordinator epoch i32   38 first offset of the transaction i64 (-1 none)
    then per producer whose last marker has the number of a decision:
    0 id i64   8 number i64

Apache Kafka reads the first part, and counts the bytes behind it for the checksum only.
Source: `org.apache.kafka.storage.internals.log.ProducerStateManager`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from lakelog.records import crc
from lakelog.records.control import NO_DECISION
from lakelog.storage.producers.state import BatchMetadata, ProducerEntry

_HEAD = struct.Struct(">hIi")
_ENTRY = struct.Struct(">qhiqiqiq")
_DECISION = struct.Struct(">qq")
_VERSION = 1
_NO_BATCH = BatchMetadata(-1, -1, 0, -1)
_CRC_START = 6


class MalformedSnapshot(ValueError):  # noqa: N818 - a state of the file
    """The snapshot cannot be used; the state must be replayed from the log."""


def encode_snapshot(entries: Mapping[int, ProducerEntry]) -> bytes:
    """Return the content of a snapshot file, in the format of Kafka's `ProducerStateManager`."""
    rows = [struct.pack(">i", len(entries))]
    for producer_id, entry in entries.items():
        last = (
            entry.batches[-1] if entry.batches else BatchMetadata(-1, -1, 0, entry.last_timestamp)
        )
        rows.append(
            _ENTRY.pack(
                producer_id,
                entry.epoch,
                last.last_sequence,
                last.last_offset,
                last.offset_delta,
                entry.last_timestamp,
                entry.coordinator_epoch,
                entry.txn_first_offset,
            )
        )
    rows += [
        _DECISION.pack(producer_id, entry.decision)
        for producer_id, entry in entries.items()
        if entry.decision != NO_DECISION
    ]
    body = b"".join(rows)
    return struct.pack(">hI", _VERSION, crc.crc32c(body)) + body


def decode_snapshot(data: bytes) -> dict[int, ProducerEntry]:
    """Return the producers by id. Raises `MalformedSnapshot`."""
    if len(data) < _HEAD.size:
        raise MalformedSnapshot(f"{len(data)} bytes are too few for a producer snapshot")
    version, checksum, count = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise MalformedSnapshot(f"version {version} of producer snapshots is not known")
    if crc.crc32c(memoryview(data)[_CRC_START:]) != checksum:
        raise MalformedSnapshot("the checksum does not match")
    end = _HEAD.size + count * _ENTRY.size
    if count < 0 or len(data) < end or (len(data) - end) % _DECISION.size:
        raise MalformedSnapshot(f"{count} producers in {len(data)} bytes")
    entries = {}
    for row in _ENTRY.iter_unpack(memoryview(data)[_HEAD.size : end]):
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator, txn = row
        entry = entries[producer_id] = ProducerEntry(epoch)
        if offset >= 0:
            entry.batches.append(BatchMetadata(sequence, offset, delta, timestamp))
        entry.last_timestamp = timestamp
        entry.coordinator_epoch = coordinator
        entry.txn_first_offset = txn
    for producer_id, decision in _DECISION.iter_unpack(memoryview(data)[end:]):
        if producer_id not in entries:
            raise MalformedSnapshot(f"the decision of producer {producer_id}, which is unknown")
        entries[producer_id].decision = decision
    return entries
