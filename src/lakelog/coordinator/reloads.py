"""Loads partitions again whose shard was dropped because of an append with an unknown outcome.

While the log cannot be read, because the disk is full or no descriptor is left, it is tried again:
nobody else would do so before the next start.
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
"""What loading a partition raises if it cannot be read."""
_RETRY_S = 1.0


class Reloads:
    """Those of one internal topic.

    Args:
        topic: its name, for the log lines.
        load: loads a partition, or returns at once if it is loaded.
    """

    def __init__(self, topic: str, load: Callable[[int], Awaitable[None]], tasks: Tasks) -> None:
        self._topic = topic
        self._load = load
        self._tasks = tasks
        self._failed: dict[int, Timer] = {}

    def begin(self, partition: int) -> None:
        name = f"reload {self._topic}-{partition}"
        self._tasks.spawn(self._reload(partition), name=name)

    def cancel(self, partition: int) -> None:
        """The partition is not to be loaded any more."""
        timer = self._failed.pop(partition, None)
        if timer is not None:
            timer.cancel()

    def cancel_all(self) -> None:
        for partition in list(self._failed):
            self.cancel(partition)

    async def _reload(self, partition: int) -> None:
        try:
            await self._load(partition)
        except UNREADABLE as error:
            if partition not in self._failed:
                logger.error(
                    "cannot load %s-%d again: %s",
                    self._topic,
                    partition,
                    error,
                    extra=event("coordinator_load_failed", topic=self._topic, partition=partition),
                )
            if isinstance(error, KafkaError) and error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                timer = self._tasks.call_later(_RETRY_S, self.begin, partition)
                self._failed[partition] = timer
        else:
            self._failed.pop(partition, None)
