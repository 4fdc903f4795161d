"""Transactional ids whose hanging transactions have to be aborted past their producers' epochs.

A fence is pending from the moment that `hanging` finds the transaction until the fence's record is
committed. It outlives the shard, because a shard that cannot write is dropped and reloaded. Until
then no other step of the transactional id is decided, because its producer could commit records
that have to be aborted.
"""

from __future__ import annotations

from collections.abc import Sequence

from lakelog.coordinator.transaction.state import OpenTransaction, TopicPartition, Transaction

_RETRY_FIRST_MS = 100
_RETRY_LONGEST_MS = 10_000


class Fence:
    """The hanging transactions of one transactional id, at least one, all of one producer id."""

    __slots__ = ("_pause_ms", "epoch", "partitions", "producer_id")

    def __init__(self, open_txns: Sequence[OpenTransaction]) -> None:
        self.producer_id = open_txns[0].producer_id
        # Records of another producer id cannot be fenced by an epoch of this one.
        assert all(open_txn.producer_id == self.producer_id for open_txn in open_txns)
        self.epoch = max(open_txn.producer_epoch for open_txn in open_txns)
        self.partitions: list[TopicPartition] = [open_txn.topic_partition for open_txn in open_txns]
        self._pause_ms = _RETRY_FIRST_MS

    def is_pending(self, current: Transaction | None) -> bool:
        """Return whether the fence is still necessary.

        It is not once the transactional id has a newer epoch or another producer id.
        """
        return (
            current is not None
            and current.producer_id == self.producer_id
            # The fence itself raises the epoch above all hanging ones, so it ends by its own
            # record.
            and current.producer_epoch <= self.epoch
        )

    def next_pause_ms(self) -> int:
        """Return the milliseconds to wait before the next retry.

        Each pause is twice the one before, up to 10 s: a retry may reload the whole partition.
        """
        pause_ms = self._pause_ms
        self._pause_ms = min(pause_ms * 2, _RETRY_LONGEST_MS)
        return pause_ms


Fences = dict[str, Fence]
"""Fences of all partitions by transactional id."""
