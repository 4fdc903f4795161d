"""Record batches, version 2: the header, the checksum and the two changes that a broker makes.

    0 base offset i64          16 magic i8               35 max timestamp i64
    8 batch length i32         17 CRC-32C u32            43 producer id i64
   12 leader epoch i32         21 attributes i16         51 producer epoch i16
                               23 last offset delta i32  53 base sequence i32
                               27 base timestamp i64     57 records count i32   61 records

The batch length counts the bytes after itself. The checksum covers byte 21 to the end, so that a
broker can set offset and leader epoch without computing a new one. This module does not parse the
records. Of a batch of magic 0 or 1, only size and magic in the header are right.

Source: KIP-98 and https://kafka.apache.org/documentation/#recordbatch.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from lakelog.records import crc
from lakelog.runtime.api import Buffer


class CorruptRecord(ValueError):  # noqa: N818 - as KafkaError's codes are named
    """Bytes that are not a valid record batch; the text names the wrong part."""


class RecordsTooLarge(CorruptRecord):
    """The decompressed records exceed the caller's limit; they may be valid.

    Some codecs cannot distinguish this from damage.
    """


HEADER_SIZE = 61
LENGTH_OVERHEAD = 12
"""The bytes up to and including the batch length, which the length does not count."""
MAGIC = 2

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

_CRC_START = 21
_LENGTH_MIN = HEADER_SIZE - LENGTH_OVERHEAD
_SEQUENCES = 1 << 31

HEADER = struct.Struct(">qiibIhiqqqhii")
HeaderFields = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]
"""The fields of a `BatchHeader`, in the order of `HEADER`."""
BASE_OFFSET, BATCH_LENGTH, ATTRIBUTES, LAST_OFFSET_DELTA, MAX_TIMESTAMP = 0, 1, 5, 6, 8
PRODUCER_ID, PRODUCER_EPOCH, BASE_SEQUENCE, RECORDS_COUNT = 9, 10, 11, 12
PLACE = struct.Struct(">qii")
"""Base offset, batch length and leader epoch; a broker sets the first and the last."""
_OFFSET = struct.Struct(">q")
_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_CRC_AND_ATTRIBUTES = struct.Struct(">Ih")
_MAX_TIMESTAMP = struct.Struct(">q")


class BatchHeader:
    """The 61 bytes before the records; only the length is validated."""

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "batch_length",
        "codec",
        "crc",
        "last_offset_delta",
        "magic",
        "max_timestamp",
        "partition_leader_epoch",
        "producer_epoch",
        "producer_id",
        "records_count",
        "size",
    )

    def __init__(
        self,
        base_offset: int,
        batch_length: int,
        partition_leader_epoch: int,
        magic: int,
        crc: int,
        attributes: int,
        last_offset_delta: int,
        base_timestamp: int,
        max_timestamp: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        records_count: int,
    ) -> None:
        self.base_offset = base_offset
        self.batch_length = batch_length
        self.partition_leader_epoch = partition_leader_epoch
        self.magic = magic
        self.crc = crc
        self.attributes = attributes
        self.last_offset_delta = last_offset_delta
        self.base_timestamp = base_timestamp
        self.max_timestamp = max_timestamp
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.records_count = records_count
        self.size = batch_length + LENGTH_OVERHEAD
        """The size of the whole batch in bytes."""
        self.codec = attributes & CODEC_MASK
        """The number of the codec, which may be unknown to `Codec`."""

    @property
    def last_offset(self) -> int:
        """The offset of the last record, inclusive, also if compaction has removed that record."""
        return self.base_offset + self.last_offset_delta

    @property
    def newest_timestamp(self) -> int:
        """The greatest timestamp (ms) of its records; -1 if compaction removed them all."""
        return self.max_timestamp if self.records_count else -1

    @property
    def timestamp_type(self) -> int:
        """The type of the timestamps: 0 for CreateTime, 1 for LogAppendTime."""
        return self.attributes >> 3 & 1

    @property
    def is_transactional(self) -> bool:
        """Whether the batch is part of a transaction (KIP-98)."""
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        """Whether the batch contains markers instead of records of a client (KIP-98)."""
        return self.attributes & CONTROL != 0

    @property
    def has_delete_horizon(self) -> bool:
        """Whether the base timestamp is the time (ms) from which tombstones go (KIP-534)."""
        return self.attributes & DELETE_HORIZON != 0

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record, or -1 without sequences; it wraps from 2^31 - 1 to 0."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) % _SEQUENCES

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BatchHeader):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return (
            f"BatchHeader(offsets {self.base_offset}..{self.last_offset}, {self.size} bytes, "
            f"{self.records_count} records, magic {self.magic}, codec {self.codec}, "
            f"producer {self.producer_id}/{self.producer_epoch}/{self.base_sequence})"
        )


def read_header(buf: Buffer, offset: int = 0) -> BatchHeader:
    """Return the header at `offset`.

    The batch itself may exceed `buf`: compare `size`. Raises `CorruptRecord` for an incomplete
    header and for an impossible length.
    """
    try:
        header = BatchHeader(*HEADER.unpack_from(buf, offset))
    except struct.error:
        short = f"{len(buf) - offset} bytes are too few for a batch header"
        raise CorruptRecord(short) from None
    if header.batch_length < _LENGTH_MIN:
        raise CorruptRecord(f"a batch length of {header.batch_length} is impossible")
    return header


def check_crc(buf: Buffer, offset: int, header: BatchHeader) -> bool:
    """Return whether the checksum matches; the whole batch must be in `buf`."""
    end = offset + header.size
    return len(buf) >= end and crc.crc32c(memoryview(buf)[offset + _CRC_START : end]) == header.crc


def iter_batches(buf: Buffer) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield header and bytes of each complete batch.

    An incomplete batch at the end is ignored, because a fetch response may end within a batch.
    Raises `CorruptRecord` for an impossible length.
    """
    view = memoryview(buf)
    position = 0
    while len(view) - position >= HEADER_SIZE:
        # A valid length is at least that of a header, so the position rises in each round.
        header = read_header(view, position)
        end = position + header.size
        if end > len(view):
            return
        yield header, view[position:end]
        position = end


def patch_offset_and_epoch(
    buf: bytearray | memoryview, offset: int, base_offset: int, leader_epoch: int
) -> None:
    """Set base offset and leader epoch of the batch at byte `offset`.

    The checksum does not cover them.
    """
    assert base_offset >= 0 and leader_epoch >= -1, "the log assigns both"
    _OFFSET.pack_into(buf, offset, base_offset)
    _EPOCH.pack_into(buf, offset + 12, leader_epoch)


def set_append_time(
    buf: bytearray | memoryview, offset: int, header: BatchHeader, now_ms: int
) -> None:
    """Change the batch, its checksum and `header` to LogAppendTime (KIP-32).

    now_ms: milliseconds since the epoch, for all records of the batch.
    """
    assert now_ms >= 0, "a negative timestamp stands for a missing one"
    header.attributes |= LOG_APPEND_TIME
    header.max_timestamp = now_ms
    _MAX_TIMESTAMP.pack_into(buf, offset + 35, now_ms)
    _seal(buf, offset, header)


def clear_append_time(buf: bytearray | memoryview, offset: int, header: BatchHeader) -> None:
    """Change the batch, its checksum and `header` to CreateTime (KIP-32)."""
    header.attributes &= ~LOG_APPEND_TIME
    _seal(buf, offset, header)


def _seal(buf: bytearray | memoryview, offset: int, header: BatchHeader) -> None:
    assert offset + header.size <= len(buf), "a checksum over a part of a batch is wrong"
    _CRC_AND_ATTRIBUTES.pack_into(buf, offset + 17, 0, header.attributes)
    header.crc = crc.crc32c(memoryview(buf)[offset + _CRC_START : offset + header.size])
    _CRC.pack_into(buf, offset + 17, header.crc)
