"""Writes record batches, version 2; `batch` and `record` describe the layout."""

from __future__ import annotations

from collections.abc import Iterable

from lakelog.records.batch import (
    CONTROL,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    TRANSACTIONAL,
)
from lakelog.records.compression import Codec, compress
from lakelog.records.crc import crc32c
from lakelog.records.varint import VARINTS, encode_varint
from lakelog.runtime.api import Buffer

_TABLE_SIZE = len(VARINTS)
_NULL = encode_varint(-1)
_CRC_AT = slice(17, 21)

HeaderItems = Iterable[tuple[str, Buffer | None]]


class BatchBuilder:
    """Collects records, then writes them as one batch.

    Sizes are in bytes before compression. A builder makes one batch and is not reused.
    """

    __slots__ = ("_base_timestamp", "_codec", "_max_timestamp", "_parts", "count", "size_estimate")

    def __init__(self, codec: int = Codec.NONE) -> None:
        self._codec = Codec(codec)
        self._parts: list[bytes] = []
        self._base_timestamp = -1
        self._max_timestamp = -1
        self.count = 0
        """Records so far."""
        self.size_estimate = HEADER_SIZE
        """What the batch would take uncompressed."""

    def append(
        self,
        timestamp: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: HeaderItems = (),
    ) -> int:
        """Adds a record and returns its offset delta. `timestamp` is milliseconds since the epoch.

        Key and value are copied.
        """
        count = self.count
        if count == 0:
            self._base_timestamp = self._max_timestamp = timestamp
        elif timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
        body = b"\0%b%b%b%b%b" % (
            encode_varint(timestamp - self._base_timestamp),
            VARINTS[count] if count < _TABLE_SIZE else encode_varint(count),
            _NULL if key is None else encode_varint(len(key)) + key,
            _NULL if value is None else encode_varint(len(value)) + value,
            _encode_headers(headers) if headers else b"\0",
        )
        size = len(body)
        length = VARINTS[size] if size < _TABLE_SIZE else encode_varint(size)
        self._parts += (length, body)
        self.size_estimate += len(length) + size
        self.count = count + 1
        return count

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
        """The batch with its checksum. At least one record must have been appended."""
        assert self.count > 0, "a batch has at least one record"
        content = b"".join(self._parts)
        if self._codec:
            content = compress(self._codec, content)
        attributes = self._codec | is_transactional * TRANSACTIONAL | is_control * CONTROL
        header = HEADER.pack(
            base_offset,
            HEADER_SIZE - LENGTH_OVERHEAD + len(content),
            leader_epoch,
            MAGIC,
            0,
            attributes,
            self.count - 1,
            self._base_timestamp,
            self._max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            self.count,
        )
        batch = bytearray(header)
        batch += content
        batch[_CRC_AT] = crc32c(memoryview(batch)[21:]).to_bytes(4, "big")
        return batch


def record_size_max(key: Buffer | None, value: Buffer | None, headers: HeaderItems = ()) -> int:
    """An upper bound for what a record adds to a batch before compression."""
    size = 5 + 1 + 10 + 5 + 5 + 5 + 5 + len(key or b"") + len(value or b"")
    return size + sum(10 + 3 * len(name) + len(item or b"") for name, item in headers)


def _encode_headers(headers: HeaderItems) -> bytes:
    items = list(headers)
    parts: list[Buffer] = [encode_varint(len(items))]
    for name, value in items:
        raw = name.encode()
        parts += (encode_varint(len(raw)), raw)
        parts += [_NULL] if value is None else [encode_varint(len(value)), value]
    return b"".join(parts)
