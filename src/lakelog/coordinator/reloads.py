"""Reloads partitions after an append with an unknown outcome, or an unexpected exception.

The host drops the shard of such a partition. If the log cannot be read now, because the disk is
full or no file descriptor is left, the reload is retried: nothing else would load the partition
before the next start of the broker. One log line stands for all failures in a row.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.events import event
from lakelog.records.errors import CorruptRecord
from lakelog.runtime.api import Tasks, Timer
from lakelog.wire.errors import WireError

logger = logging.getLogger(__name__)

UNREADABLE = (KafkaError, OSError, CorruptRecord, WireError)
"""Errors that loading a partition raises if the log cannot be read."""
_RETRY_S = 1.0


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
