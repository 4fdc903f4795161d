"""Whether a batch may be appended, decided from its header and checksum.

The records are looked at only where the topic's configuration demands it: a compacted topic needs
keys, and a bound on old timestamps needs the smallest.

Source: `UnifiedLog.analyzeAndValidateRecords` and `LogValidator` of
`org.apache.kafka.storage.internals.log`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.topic_config import LogConfig
from lakelog.records.batch import (
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
    CorruptRecord,
    HeaderFields,
    check_crc,
    clear_append_time,
    read_header,
)
from lakelog.records.crc import crc32c
from lakelog.records.heads import iter_heads
from lakelog.records.record import record_view
from lakelog.runtime.api import Buffer
from lakelog.storage.record_errors import checking_records

Origin = Literal["client", "coordinator"]
_CODEC_MAX = 4
CODECS = frozenset(range(_CODEC_MAX + 1))
"""The attributes of a batch that is nothing but compressed, or not."""
_USUAL_ATTRIBUTES = CODECS | {codec | TRANSACTIONAL for codec in CODECS}
_TIME_MAX = (1 << 63) - 1
CRC_START = 21
DECODED_BYTES_MAX = 64 << 20
"""What the records of one batch may take decompressed, whatever its topic says."""
WALKED_MAX = 1_000_000
"""Records of one batch where each is to be looked at."""
WALKED_AT_ONCE = 5_000
"""The same of a batch that need not leave the loop to others meanwhile."""
DECODED_AT_ONCE = 1 << 20
"""What the records of such a batch may take decompressed."""


def decoded_bytes_max(config: LogConfig, codec: int) -> int:
    """What the records of a batch of this codec may take decompressed."""
    if not codec:
        return DECODED_BYTES_MAX
    return min(config.max_decompressed_message_bytes, DECODED_BYTES_MAX)


class SlowBatchError(Exception):
    """To look into the records of the batch takes too long for one turn of the loop.

    Nothing was done. The batch may come again as a `WalkedBatch`.
    """


class WalkedBatch(bytearray):
    """A batch whose records are as `config` wants them: `read_records` and `walking` say so."""

    config: LogConfig


def check_incoming(
    batch: bytearray | memoryview, config: LogConfig, now_ms: int, origin: Origin
) -> HeaderFields:
    """The header's fields if the batch may be appended. Raises `KafkaError` 2, 10, 32 or 87.

    The usual case is one expression, because every produced batch passes here; what it does not
    let through is looked at again for the reason.
    """
    size = len(batch)
    if size < HEADER_SIZE:
        raise _invalid(f"{size} bytes are too few for a batch")
    fields: HeaderFields = HEADER.unpack_from(batch)
    base, length, _, magic, crc, attributes, delta, _, timestamp, producer, epoch, first, count = (
        fields
    )
    if not (
        length + LENGTH_OVERHEAD == size <= config.max_message_bytes
        and magic == MAGIC
        and crc32c(memoryview(batch)[CRC_START:]) == crc
    ):
        read_batch(batch, config)
    if origin == "client" and not (
        base == 0
        and delta + 1 == count > 0
        and attributes in _USUAL_ATTRIBUTES
        and (producer < 0 or (first >= 0 and epoch >= 0))
        and timestamp - now_ms <= config.message_timestamp_after_max_ms
        and config.message_timestamp_before_max_ms == _TIME_MAX
        and "compact" not in config.cleanup_policy
    ):
        header = BatchHeader(*fields)
        check_batch(batch, header, config, now_ms)
        if header.timestamp_type:
            clear_append_time(batch, 0, header)
            fields = HEADER.unpack_from(batch)
    return fields


def read_batch(batch: bytearray | memoryview, config: LogConfig) -> BatchHeader:
    """The header of exactly one intact batch. Raises `KafkaError` 87, 10 or 2.

    A batch that is cut off counts as none, which is 87.
    """
    size = len(batch)
    if size < HEADER_SIZE:
        raise _invalid(f"{size} bytes are too few for a batch")
    try:
        header = read_header(batch)
    except CorruptRecord as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    if not 0 <= header.magic <= MAGIC:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"there is no magic {header.magic}")
    if header.magic != MAGIC:
        raise _invalid(f"record batches of magic {header.magic}")
    if header.size != size:
        raise _invalid(f"a batch of {header.size} bytes in {size} bytes of records")
    if size > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {size} bytes; max.message.bytes is {config.max_message_bytes}",
        )
    if not check_crc(batch, 0, header):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the batch's checksum does not match")
    return header


def check_batch(
    batch: bytearray | memoryview, header: BatchHeader, config: LogConfig, now_ms: int
) -> None:
    """What a client may not send: raises `KafkaError` 87, 32 or 10, or `SlowBatchError`.

    As in Apache Kafka, a delete horizon and unknown attributes are no reason; neither is the
    broker's time, where the topic has the producers' and the batch has any.
    """
    count = header.records_count
    if count <= 0 or header.last_offset_delta != count - 1:
        raise _invalid(f"{count} records with a last offset delta of {header.last_offset_delta}")
    if header.base_offset != 0:
        raise _invalid(f"a base offset of {header.base_offset} where a producer sends 0")
    if header.is_control or header.codec > _CODEC_MAX:
        raise _invalid(f"attributes {header.attributes:#x}: a control batch, or no known codec")
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise _invalid(
            f"epoch {header.producer_epoch}, sequence {header.base_sequence} "
            f"of producer {header.producer_id}"
        )
    if header.timestamp_type and (
        config.message_timestamp_type != "CreateTime" or header.max_timestamp < 0
    ):
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "a producer may not send LogAppendTime")
    if needs_records(header, config, now_ms) and not _is_walked(batch, config):
        _walk_at_once(batch, header, config, now_ms)


def _is_walked(batch: Buffer, config: LogConfig) -> bool:
    return isinstance(batch, WalkedBatch) and batch.config is config


def _walk_at_once(batch: Buffer, header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    if header.records_count > WALKED_MAX:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"{header.records_count} records in a batch; where each is looked at, as in a "
            f"compacted topic, at most {WALKED_MAX} are taken",
        )
    if header.records_count > WALKED_AT_ONCE:
        raise SlowBatchError
    try:
        most = decoded_bytes_max(config, header.codec)
        data = record_view(batch, header, min(most, DECODED_AT_ONCE) if header.codec else most)
    except CorruptRecord as error:
        if header.codec:
            raise SlowBatchError from error
        raise _invalid(str(error)) from error
    for _ in walking(data, header, config, now_ms):
        pass


def read_records(batch: Buffer, header: BatchHeader, config: LogConfig) -> bytes | memoryview:
    """The records of a batch, however large they are. Raises `KafkaError` 87."""
    try:
        return record_view(batch, header, decoded_bytes_max(config, header.codec))
    except CorruptRecord as error:
        raise _invalid(str(error)) from error


def walking(
    data: bytes | memoryview, header: BatchHeader, config: LogConfig, now_ms: int
) -> Iterator[None]:
    """Looks at some of the records at each step; raises `KafkaError` 87 or 32 in the end."""
    try:
        yield from checking_records(iter_heads(data, header), config, now_ms)
    except CorruptRecord as error:
        raise _invalid(str(error)) from error


def needs_records(header: BatchHeader, config: LogConfig, now_ms: int) -> bool:
    """Whether the header does not settle it."""
    if "compact" in config.cleanup_policy:
        return True
    return config.message_timestamp_type == "CreateTime" and (
        header.max_timestamp - now_ms > config.message_timestamp_after_max_ms
        or config.message_timestamp_before_max_ms != _TIME_MAX
    )


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, reason)
