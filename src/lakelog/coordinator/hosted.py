"""A partition that its host serves in one leader epoch.

It consists of the shard, its log, and the decisions that wait for the log.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Generic, TypeVar

from lakelog.coordinator.shard import PartitionLog, Result, Shard
from lakelog.runtime.api import Timer

S = TypeVar("S", bound=Shard[Any])

_BATCH_OVERHEAD = 61
_RECORD_OVERHEAD = 32
"""Upper bound of a record's size without its key and value."""

Encoded = tuple[bytes, bytes | None]


class Hosted(Generic[S]):
    """One partition in one leader epoch: its shard, and the decisions that wait for the log."""

    __slots__ = (
        "active",
        "dropped",
        "leader_epoch",
        "log",
        "offset_last",
        "partition",
        "queue",
        "shard",
        "timer",
        "timer_ms",
        "writing",
    )

    def __init__(self, partition: int, leader_epoch: int, log: PartitionLog, shard: S) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.log = log
        self.shard = shard
        self.active = False
        self.dropped = False
        self.writing = False
        self.offset_last = -1
        """Base offset of the newest append, which a later one exceeds."""
        self.queue: deque[tuple[Result[Any], list[Encoded]]] = deque()
        self.timer: Timer | None = None
        self.timer_ms = 0

    def take_batch(self, batch_bytes_max: int) -> tuple[list[Result[Any]], list[Encoded]]:
        """Take the decisions of the next append; a transactional decision or a marker is alone."""
        results: list[Result[Any]] = []
        records: list[Encoded] = []
        size = _BATCH_OVERHEAD
        while self.queue:
            head, encoded = self.queue[0]
            is_alone = head.marker is not None or head.producer is not None
            size += sum(len(key) + len(value or b"") + _RECORD_OVERHEAD for key, value in encoded)
            if results and (is_alone or size > batch_bytes_max):
                break
            self.queue.popleft()
            results.append(head)
            records += encoded
            if is_alone:
                break
        return results, records
