"""Loads shards: replays a partition's log into a new one, and reloads it after an unknown outcome.

The event loop runs between the reads of a log. After an append with an unknown outcome the host
drops the shard of the partition. If the log cannot be read now, because the disk is full or no file
descriptor is left, the reload is retried, as it is after an unexpected exception: nothing else
would load the partition before the next start of the broker. One log line stands for all failures
in a row.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.events import event
from lakelog.coordinator.shard import PartitionLog, Shard
from lakelog.records.batch import BatchHeader, CorruptRecord, check_crc, iter_batches
from lakelog.records.record import decode_records
from lakelog.runtime.api import Tasks, Timer
from lakelog.wire.primitives import WireError

logger = logging.getLogger(__name__)

UNREADABLE = (KafkaError, OSError, CorruptRecord, WireError)
"""Errors that loading a partition raises if the log cannot be read."""
_RETRY_S = 1.0
_BATCH_BYTES_MAX = 64 << 20
"""Largest size that one batch may have when it is decompressed."""
_ABORT, _COMMIT = b"\x00\x00", b"\x00\x01"
"""Types of a control record; they follow the version in its key."""


async def replay_log(
    log: PartitionLog,
    tasks: Tasks,
    topic: str,
    partition: int,
    shard: Shard[Any],
    is_dropped: Callable[[], bool],
) -> None:
    """Replay all committed records of a partition in the order of their offsets.

    Returns early once the shard is dropped. Raises `KafkaError` or `OSError` if the log cannot be
    read, `CorruptRecord` for a batch with a wrong CRC, `WireError` for a malformed record.
    """
    offset = await log.start_offset()
    while not is_dropped():
        data = await log.read(offset)
        if not data:
            return
        previous = offset
        for header, batch in iter_batches(data):
            if not check_crc(batch, 0, header):
                raise CorruptRecord(f"{topic}-{partition}: bad CRC at {offset}")
            _replay_batch(shard, header, batch, offset)
            offset = header.last_offset + 1
        if offset == previous:
            raise CorruptRecord(f"{topic}-{partition} returned no batch at {offset}")
        await _yield_to_loop(tasks)


def _replay_batch(shard: Shard[Any], header: BatchHeader, batch: memoryview, offset: int) -> None:
    for record in decode_records(batch, header, _BATCH_BYTES_MAX):
        if record.offset < offset or record.key is None:
            continue
        if header.is_control:
            _replay_control(shard, header.producer_id, record.key)
        elif (decoded := shard.decode(record.key, record.value)) is None:
            continue
        elif header.is_transactional:
            shard.replay_pending(decoded, header.producer_id)
        else:
            shard.replay(decoded)


def _replay_control(shard: Shard[Any], producer_id: int, key: bytes) -> None:
    """Other control records (a leader change, a snapshot's head) do not concern coordinators."""
    kind = key[2:4]
    if kind in (_ABORT, _COMMIT):
        shard.replay_end(producer_id, commit=kind == _COMMIT)


async def _yield_to_loop(tasks: Tasks) -> None:
    pause = tasks.future()
    tasks.call_soon(pause.set_result, None)
    await pause


class Reloads:
    """Reloads of the partitions of one internal topic.

    Args:
        topic: name of the topic, for log messages.
        load: loads a partition for a leader epoch, or returns at once if it is loaded.
    """

    def __init__(
        self, topic: str, load: Callable[[int, int], Awaitable[None]], tasks: Tasks
    ) -> None:
        self._topic = topic
        self._load = load
        self._tasks = tasks
        self._failed: dict[int, Timer] = {}
        """Timers of the next attempts, the last one also during the attempt."""

    def begin(self, partition: int, leader_epoch: int) -> None:
        """Start to reload a partition whose shard was dropped."""
        name = f"reload {self._topic}-{partition}"
        self._tasks.spawn(self._reload(partition, leader_epoch), name=name)

    def survive(self, partition: int, leader_epoch: int, bug: Exception) -> None:
        """Load a partition again after an exception that no code expects."""
        if partition not in self._failed:
            logger.error(
                "loading %s-%d failed, and is repeated: %r",
                self._topic,
                partition,
                bug,
                exc_info=bug,
                extra=event("task_failed", task=f"load {self._topic}-{partition}"),
            )
        self._retry_later(partition, leader_epoch)

    def _retry_later(self, partition: int, leader_epoch: int) -> None:
        # A load that was not a retry may have failed, while the next retry waits.
        self.cancel(partition)
        timer = self._tasks.call_later(_RETRY_S, self.begin, partition, leader_epoch)
        self._failed[partition] = timer

    def cancel(self, partition: int) -> None:
        """Stop retrying to load a partition, which is loaded or not led any more."""
        timer = self._failed.pop(partition, None)
        if timer is not None:
            timer.cancel()

    def cancel_all(self) -> None:
        """Stop retrying to load any partition."""
        for partition in list(self._failed):
            self.cancel(partition)

    async def _reload(self, partition: int, leader_epoch: int) -> None:
        try:
            await self._load(partition, leader_epoch)
        except UNREADABLE as error:
            code = error.code if isinstance(error, KafkaError) else None
            if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                return  # the change of the role loads the partition, if this broker still leads it
            if partition not in self._failed:
                logger.error(
                    "cannot reload %s-%d: %s",
                    self._topic,
                    partition,
                    error,
                    extra=event("coordinator_load_failed", topic=self._topic, partition=partition),
                )
            if code is ErrorCode.KAFKA_STORAGE_ERROR:
                self._retry_later(partition, leader_epoch)
