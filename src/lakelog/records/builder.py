"""Builds record batches, version 2; `batch` and `record` describe the layout.

`with_codec` converts a batch for topics with a `compression.type`. The records stay byte for byte;
only their compression, the attributes and the checksum change. Producer id, epoch and sequence
stay, so that duplicates are still detected.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lakelog.records import crc
from lakelog.records.batch import (
    CODEC_MASK,
    CONTROL,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
)
from lakelog.records.compression import Codec, compress
from lakelog.records.record import record_bytes
from lakelog.records.varint import VARINTS, encode_varint
from lakelog.runtime.api import Buffer

_TABLE_SIZE = len(VARINTS)
_NULL = encode_varint(-1)
_RECORD_OVERHEAD = 32
"""An upper bound of the bytes of lengths, attributes and deltas in a record without headers."""
_join = b"".join
_CRC_AT = slice(17, 21)

HeaderItems = Iterable[tuple[str, Buffer | None]]


class BatchBuilder:
    """Collects records and builds one batch of them; not reusable.

    Sizes are in bytes before compression.
    """

    __slots__ = ("_base_timestamp", "_codec", "_max_timestamp", "_parts", "count", "size_estimate")

    def __init__(self, codec: int = Codec.NONE) -> None:
        self._codec = Codec(codec)
        self._parts: list[bytes] = []
        self._base_timestamp = -1
        self._max_timestamp = -1
        self.count = 0
        """The number of records."""
        self.size_estimate = HEADER_SIZE
        """The size of the batch in bytes, without compression."""

    def append(
        self,
        timestamp: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: HeaderItems = (),
    ) -> int:
        """Add a record and return its offset delta. `timestamp` is in ms since the Unix epoch.

        Key and value are copied. Raises `TypeError` for a value that is not a buffer; the batch
        then keeps the records before it.
        """
        count = self.count
        if count == 0:
            self._base_timestamp = self._max_timestamp = timestamp
        elif timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
        delta = timestamp - self._base_timestamp
        if headers or value is None or delta < 0:
            body = encode_record(delta, count, key, value, headers)
        else:
            try:
                if key is None:
                    body = _join(
                        (
                            b"\0",
                            VARINTS[delta],
                            VARINTS[count],
                            _NULL,
                            VARINTS[len(value)],
                            value,
                            b"\0",
                        )
                    )
                else:
                    key_size, value_size = VARINTS[len(key)], VARINTS[len(value)]
                    body = _join(
                        (
                            b"\0",
                            VARINTS[delta],
                            VARINTS[count],
                            key_size,
                            key,
                            value_size,
                            value,
                            b"\0",
                        )
                    )
            except IndexError:  # a number is beyond the table, which is rare
                body = encode_record(delta, count, key, value, headers)
        size = len(body)
        length = VARINTS[size] if size < _TABLE_SIZE else encode_varint(size)
        self._parts += (length, body)
        self.size_estimate += len(length) + size
        self.count = count + 1
        return count

    def extend(self, timestamp: int, values: Sequence[Buffer], size_max: int) -> int:
        """Add records of values with one timestamp, and return the number of added records.

        It stops before `size_estimate` exceeds `size_max`, but adds at least one record. This is
        faster than as many calls of `append`.
        """
        if not values:
            return 0
        start = self.append(timestamp, None, values[0])
        time = encode_varint(timestamp - self._base_timestamp)
        parts, size, count = self._parts, self.size_estimate, start + 1
        full = size_max - _RECORD_OVERHEAD
        try:
            for value in values[1:]:
                value_size = len(value)
                if size + value_size > full:
                    break
                body = _join(
                    (
                        b"\0",
                        time,
                        VARINTS[count] if count < _TABLE_SIZE else encode_varint(count),
                        _NULL,
                        VARINTS[value_size]
                        if value_size < _TABLE_SIZE
                        else encode_varint(value_size),
                        value,
                        b"\0",
                    )
                )
                body_size = len(body)
                length = VARINTS[body_size] if body_size < _TABLE_SIZE else encode_varint(body_size)
                parts += (length, body)
                size += len(length) + body_size
                count += 1
        finally:  # raises for a value that is no bytes; the batch keeps the values before it
            self.size_estimate, self.count = size, count
        return count - start

    def build(
        self,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        base_offset: int = 0,
        *,
        leader_epoch: int = -1,
        is_transactional: bool = False,
        is_control: bool = False,
    ) -> bytearray:
        """Return the batch with its checksum; there must be at least one record.

        producer_id, producer_epoch, base_sequence: -1 for a producer that is not idempotent
        (KIP-98). base_offset, leader_epoch: set by the broker when it appends the batch.
        """
        assert self.count > 0, "a batch has at least one record"
        content = b"".join(self._parts)
        assert HEADER_SIZE + len(content) == self.size_estimate, "sizes are added up correctly"
        if self._codec:
            content = compress(self._codec, content)
        batch = bytearray(HEADER_SIZE)
        batch += content
        seal(
            batch,
            self._codec | is_transactional * TRANSACTIONAL | is_control * CONTROL,
            self.count,
            self._base_timestamp,
            self._max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            base_offset,
            leader_epoch,
        )
        return batch


def seal(
    batch: bytearray | memoryview,
    attributes: int,
    count: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    base_offset: int,
    leader_epoch: int,
    last_offset_delta: int | None = None,
) -> None:
    """Write header and checksum of a batch of `count` records, which follow the space for it.

    base_timestamp: of the first record, in ms. `BatchBuilder.build` defines the other numbers.
    last_offset_delta: None if no offset is missing in the batch.
    """
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        len(batch) - LENGTH_OVERHEAD,
        leader_epoch,
        MAGIC,
        0,
        attributes,
        count - 1 if last_offset_delta is None else last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    batch[_CRC_AT] = crc.crc32c(memoryview(batch)[21:]).to_bytes(4, "big")


def encode_record(
    delta_ms: int, offset_delta: int, key: Buffer | None, value: Buffer | None, headers: HeaderItems
) -> bytes:
    """Return the encoding of a record, without its length."""
    parts: list[Buffer] = [b"\0", encode_varint(delta_ms), encode_varint(offset_delta)]
    for item in (key, value):
        parts += [_NULL] if item is None else [encode_varint(len(item)), item]
    parts.append(_encode_headers(headers) if headers else b"\0")
    return _join(parts)


def _encode_headers(headers: HeaderItems) -> bytes:
    items = list(headers)
    parts: list[Buffer] = [encode_varint(len(items))]
    for name, value in items:
        raw = name.encode()
        parts += (encode_varint(len(raw)), raw)
        parts += [_NULL] if value is None else [encode_varint(len(value)), value]
    return b"".join(parts)


def rewritten(
    header: BatchHeader,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    count: int,
    content: bytes,
) -> bytearray:
    """Return the batch of `header` with `count` other records, whose encoding is `content`.

    Offsets, leader epoch, producer and sequence stay. Timestamps are in milliseconds.
    """
    batch = bytearray(HEADER_SIZE)
    batch += content
    seal(
        batch,
        attributes,
        count,
        base_timestamp,
        max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.base_offset,
        header.partition_leader_epoch,
        header.last_offset_delta,
    )
    return batch


def with_codec(batch: Buffer, header: BatchHeader, codec: int, max_bytes: int) -> bytearray:
    """Return a new batch; `max_bytes` limits the decompressed size of the records.

    The caller must have checked the checksum of `batch`, because the new checksum also matches
    damaged records. Raises `CorruptRecord` for records that cannot be decompressed, and
    `RecordsTooLarge`.
    """
    assert codec & ~CODEC_MASK == 0, "a codec fits into its bits of the attributes"
    content = compress(codec, record_bytes(batch, header, max_bytes))
    attributes = header.attributes & ~CODEC_MASK | codec
    first, newest = header.base_timestamp, header.max_timestamp
    return rewritten(header, attributes, first, newest, header.records_count, content)
