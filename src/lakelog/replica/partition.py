"""One partition as this broker holds it: a log, a leader epoch and the high watermark.

A partition has one owner, the loop; no method suspends. With a single replica the high watermark
is the log end offset: a record is committed once it is appended.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.topic_config import LogConfig
from lakelog.records.compression import Codec
from lakelog.records.errors import CorruptRecord
from lakelog.records.recompress import with_codec
from lakelog.storage.errors import CorruptLog
from lakelog.storage.handles import LogSlice
from lakelog.storage.log import AppendResult, Log
from lakelog.storage.timestamps import TimestampOffset
from lakelog.storage.validate import DECODED_BYTES_MAX, Origin, read_batch

logger = logging.getLogger(__name__)

_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class Partition:
    """Raises `KafkaError` from every method that the protocol has an answer for."""

    __slots__ = (
        "_active_segment",
        "_damage_told",
        "_on_roll",
        "_retired",
        "flushed_ms",
        "index",
        "key",
        "leader_epoch",
        "log",
        "offline_reason",
        "topic",
        "topic_id",
    )

    def __init__(self, log: Log, leader_epoch: int, on_roll: Callable[[Partition], object]) -> None:
        """`on_roll` is called when a segment was closed, for it to be made durable."""
        self.topic = log.topic
        self.topic_id = log.topic_id
        self.index = log.partition
        self.key = (log.topic_id, log.partition)
        self.log = log
        self.leader_epoch = leader_epoch
        self.offline_reason: str | None = None
        self._retired = False
        self.flushed_ms = 0
        """When `flush.ms` last had it flushed."""
        self._on_roll = on_roll
        self._active_segment = log.active_segment
        self._damage_told = ""

    @property
    def high_watermark(self) -> int:
        """The end of what consumers may read, exclusive."""
        return self.log.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """The end of what `read_committed` consumers may read, exclusive."""
        return self.log.log_end_offset

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Fences a client whose metadata is older or newer than this broker's (KIP-320)."""
        if current_leader_epoch in (-1, self.leader_epoch):
            return
        if current_leader_epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def append(
        self, batch: bytearray | memoryview, now_ms: int, *, origin: Origin = "client"
    ) -> AppendResult:
        """Appends one record batch, whose offset and epoch fields are overwritten in place."""
        self._check_online()
        log = self.log
        if log.config.compression_type != "producer" and origin == "client":
            batch = _recompressed(batch, log.config)
        try:
            result = log.append(batch, leader_epoch=self.leader_epoch, now_ms=now_ms, origin=origin)
            if log.log_end_offset - log.recovery_point >= log.config.flush_messages:
                self._flush_now()
        except (OSError, CorruptLog) as error:
            raise self._storage_error(error) from error
        if log.active_segment is not self._active_segment:
            self._active_segment = log.active_segment
            self._on_roll(self)
        return result

    def _flush_now(self) -> None:
        """`flush.messages` promises that so many records are durable before they are answered."""
        job = self.log.begin_flush()
        if job is not None:
            job.run()
            self.log.finish_flush(job)

    @property
    def is_retired(self) -> bool:
        """Whether the topic was deleted."""
        return self._retired

    def become_leader(self, leader_epoch: int) -> None:
        """The epoch begins at the log's end."""
        self.leader_epoch = leader_epoch
        self.log.assign_epoch(leader_epoch)

    def read(self, offset: int, max_bytes: int, *, min_one: bool) -> LogSlice | None:
        """Whole stored batches from the one that holds `offset`, up to the high watermark."""
        self._check_online()
        try:
            return self.log.read(
                offset, max_bytes, end_offset=self.log.log_end_offset, min_one=min_one
            )
        except (OSError, CorruptLog) as error:
            raise self._reading_error(error) from error

    def at_time(self, timestamp_ms: int) -> TimestampOffset | None:
        """The first record at or after a time, or none."""
        self._check_online()
        try:
            return self.log.offset_for_timestamp(timestamp_ms)
        except (OSError, CorruptLog) as error:
            raise self._reading_error(error) from error

    def max_timestamp(self) -> TimestampOffset | None:
        """The record with the largest timestamp, or none in an empty log."""
        self._check_online()
        try:
            return self.log.max_timestamp()
        except (OSError, CorruptLog) as error:
            raise self._reading_error(error) from error

    def check_min_insync(self) -> None:
        """For `acks=all`: the leader alone is in sync, and the topic may ask for more."""
        if self.log.config.min_insync_replicas > 1:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)

    def retire(self) -> None:
        """The topic was deleted: nothing is served from here any more."""
        self._retired = True

    def take_offline(self, reason: str) -> None:
        """Stops serving: only a restart, which recovers the log from disk, brings it back."""
        logger.error("partition %s-%d is offline: %s", self.topic, self.index, reason)
        self.offline_reason = reason

    def _check_online(self) -> None:
        if self._retired:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if self.offline_reason is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.offline_reason)

    def _reading_error(self, error: OSError | CorruptLog) -> KafkaError:
        """What is damaged is told where it is read; the rest of the log can be read on."""
        if isinstance(error, OSError):
            return self._storage_error(error)
        if str(error) != self._damage_told:
            # Consumers ask again and again; one line for a place is enough.
            self._damage_told = str(error)
            logger.error("partition %s-%d: %s", self.topic, self.index, error)
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error))

    def _storage_error(self, error: OSError | CorruptLog) -> KafkaError:
        """A full disk is worth a retry; any other failure leaves the log's state unknown."""
        if isinstance(error, OSError) and error.errno in _DISK_FULL:
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")
        self.take_offline(str(error))
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the log directory failed")


_CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


def _recompressed(batch: bytearray | memoryview, config: LogConfig) -> bytearray | memoryview:
    """The batch in the topic's own codec; checked first, for its checksum is made anew."""
    header = read_batch(batch, config)
    codec = _CODECS[config.compression_type]
    if header.codec == codec:
        return batch
    try:
        return with_codec(batch, header, codec, DECODED_BYTES_MAX)
    except CorruptRecord as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error
