"""Settings of a topic that a partition applies: the archive's floor of retention, and the codec."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from lakelog.base.config.log_config import LogConfig
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.records.batch import BatchHeader, CorruptRecord
from lakelog.records.builder import with_codec
from lakelog.records.compression import Codec
from lakelog.storage.validation import (
    DECODED_AT_ONCE,
    SlowBatchError,
    decoded_bytes_max,
    read_batch,
)


def archive_floor(config: LogConfig, partition: int) -> int | None:
    """Return the first offset of a partition that retention must keep; `None` without a table.

    The archive job publishes the ends of its table as the topic key `table.archived.offsets`. Topic
    configuration is metadata, so leaders and followers apply one floor, also after a failover. A
    broker with old metadata has a lower floor and keeps more.
    """
    if not config.table_enable:
        return None
    return _parsed(config.table_archived_offsets).get(partition, 0)


@lru_cache(maxsize=64)
def _parsed(ends: tuple[str, ...]) -> Mapping[int, int]:
    # All partitions of a topic share one list: each parsing it would be quadratic.
    pairs = (item.split(":") for item in ends)
    return {int(partition): int(offset) for partition, offset in pairs}


_CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


def recompressed(batch: bytearray | memoryview, config: LogConfig) -> bytearray | memoryview:
    """Return the batch in the topic's codec, or the same object if it has this codec already.

    The batch is checked first: a new checksum would hide damage. Raises `KafkaError` for an invalid
    batch, and `SlowBatchError` if it is too large to be decompressed on the loop.
    """
    header = read_batch(batch, config)
    codec = _CODECS[config.compression_type]
    if header.codec == codec:
        return batch
    try:
        most = min(decoded_bytes_max(config, header.codec), DECODED_AT_ONCE)
        return with_codec(batch, header, codec, most)
    except CorruptRecord as error:
        raise SlowBatchError(sampled=False) from error


def recompressed_slowly(batch: bytearray, header: BatchHeader, config: LogConfig) -> bytearray:
    """Return a batch of any size in the topic's codec; runs in a thread.

    header: of the batch, which the caller has checked. Raises `KafkaError` (INVALID_RECORD).
    """
    codec = _CODECS.get(config.compression_type, header.codec)
    if header.codec == codec:
        return batch
    try:
        return with_codec(batch, header, codec, decoded_bytes_max(config, header.codec))
    except CorruptRecord as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error
