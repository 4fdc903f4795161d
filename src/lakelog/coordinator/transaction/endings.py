"""The ends of a shard's transactions: decided, told to their partitions, complete."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.shard import Now, Result
from lakelog.coordinator.transaction.fences import Fences
from lakelog.coordinator.transaction.ids import Decision, TransactionalIds
from lakelog.coordinator.transaction.markers import EndingTransactions
from lakelog.coordinator.transaction.state import TopicPartition, Transaction, TransactionState
from lakelog.coordinator.transaction.transitions import completed, fenced, fenced_beyond

OnEnding = Callable[[EndingTransactions, str, Transaction], None]
"""Called when a transaction has to tell its partitions how it ended."""


class Endings:
    """Which partitions of an ending transaction have their markers is not durable: markers may be
    repeated."""

    def __init__(
        self, partition: int, ids: TransactionalIds, on_ending: OnEnding, fences: Fences
    ) -> None:
        self.partition = partition
        self._ids = ids
        self._on_ending = on_ending
        self._fences = fences
        self._marked: dict[str, set[TopicPartition]] = {}
        self.is_unloaded = False

    def tell(self, transactional_id: str, now: Now) -> Decision:
        """Sets the markers going; a transaction without partitions needs none."""
        ending = self._ids.transactions[transactional_id]
        self._marked[transactional_id] = set()
        if not ending.partitions:
            return self.complete(now, transactional_id, ending, lambda code: None)
        self._on_ending(self, transactional_id, ending)
        return Result()

    def is_ending(self, transactional_id: str, ending: Transaction) -> bool:
        return not self.is_unloaded and self._ids.transactions.get(transactional_id) is ending

    def unmarked(self, transactional_id: str, ending: Transaction) -> frozenset[TopicPartition]:
        if not self.is_ending(transactional_id, ending):
            return frozenset()
        return ending.partitions - self._marked[transactional_id]

    def marked(
        self, transactional_id: str, ending: Transaction, partitions: Sequence[TopicPartition]
    ) -> None:
        if self.is_ending(transactional_id, ending):
            self._marked[transactional_id].update(partitions)

    def told(self, transactional_id: str) -> set[TopicPartition]:
        """The partitions that have their markers."""
        return self._marked.get(transactional_id, set())

    def complete(
        self,
        now: Now,
        transactional_id: str,
        ending: Transaction,
        reply: Callable[[ErrorCode], None],
    ) -> Decision:
        if not self.is_ending(transactional_id, ending):
            reply(ErrorCode.NONE)
            return Result()
        assert ending.partitions <= self._marked[transactional_id], "a partition has no marker"
        commits = ending.state is TransactionState.PREPARE_COMMIT
        if transactional_id in self._ids.pending or not (
            commits or self._ids.is_settled(transactional_id)
        ):
            # After `fence` there is more to tell, and it is told then.
            reply(ErrorCode.CONCURRENT_TRANSACTIONS)
            return Result()

        def committed(now: Now) -> Decision | None:
            self._marked.pop(transactional_id, None)
            reply(ErrorCode.NONE)
            is_next = self._ids.is_to_be_fenced(transactional_id)
            return self.fence(now, transactional_id) if is_next else None

        def failed(now: Now, code: ErrorCode) -> None:
            reply(code)
            if not ending.partitions:
                self._ids.try_again(now, transactional_id)

        step = completed(ending, now.wall_ms)
        return self._ids.step(now, transactional_id, step, committed, failed)

    def abort(self, now: Now, transactional_id: str, current: Transaction) -> Decision:
        """Aborts an ongoing transaction, past the epoch of its producer."""

        def committed(now: Now) -> Decision:
            return self.tell(transactional_id, now)

        def failed(now: Now, _: ErrorCode) -> None:
            self._ids.try_again(now, transactional_id)

        step = fenced(current, now.wall_ms)
        return self._ids.step(now, transactional_id, step, committed, failed)

    def fence(self, now: Now, transactional_id: str) -> Decision:
        """Aborts what partitions have of its producer and is not known here, past all its epochs.

        It is tried again until it could be written. A commit that is decided is completed first:
        the epoch of its records is known by its own, at another start too.
        """
        fence = self._fences[transactional_id]
        current = self._ids.transactions[transactional_id]
        if current.state is TransactionState.PREPARE_COMMIT:
            return Result() if current.partitions else self.tell(transactional_id, now)
        step = fenced_beyond(current, fence.partitions, fence.epoch, now.wall_ms)

        def committed(now: Now) -> Decision:
            self._fences.pop(transactional_id, None)
            return self.tell(transactional_id, now)

        def failed(now: Now, _: ErrorCode) -> None:
            self.fence_later(now, transactional_id)

        return self._ids.step(now, transactional_id, step, committed, failed)

    def fence_later(self, now: Now, transactional_id: str) -> None:
        pause_ms = self._fences[transactional_id].next_pause_ms()
        self._ids.try_again(now, transactional_id, pause_ms)
