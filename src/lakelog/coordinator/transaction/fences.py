"""What is to be aborted past its producer's epochs as soon as that can be written.

A fence is owed from the moment at which the hang is found (`hanging`) until its record is
committed. It outlives the shard: one that cannot write is dropped and loaded again. Until then
nothing else is decided for the transactional id, or its producer could commit what is to be
aborted.
"""

from __future__ import annotations

from collections.abc import Sequence

from lakelog.coordinator.transaction.hanging import OpenTransaction
from lakelog.coordinator.transaction.state import TopicPartition, Transaction

_RETRY_FIRST_MS = 100
_RETRY_LONGEST_MS = 10_000


class Fence:
    """Of one transactional id, whose producer has these transactions open; at least one."""

    __slots__ = ("_pause_ms", "epoch", "partitions", "producer_id")

    def __init__(self, found: Sequence[OpenTransaction]) -> None:
        self.producer_id = found[0].producer_id
        assert all(each.producer_id == self.producer_id for each in found)
        self.epoch = max(each.producer_epoch for each in found)
        self.partitions: list[TopicPartition] = [each.place for each in found]
        self._pause_ms = _RETRY_FIRST_MS

    def is_owed(self, current: Transaction | None) -> bool:
        """Not once the producer has an epoch past those that hang, or is another one."""
        return (
            current is not None
            and current.producer_id == self.producer_id
            and current.producer_epoch <= self.epoch
        )

    def next_pause_ms(self) -> int:
        """How long to wait before it is tried again: each time longer, for a retry may have the
        whole partition loaded anew."""
        pause_ms = self._pause_ms
        self._pause_ms = min(pause_ms * 2, _RETRY_LONGEST_MS)
        return pause_ms


Fences = dict[str, Fence]
"""By transactional id, in all partitions."""
