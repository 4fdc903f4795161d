"""How the transactions of a shard end: abort, markers, completion."""

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
"""Called to write a transaction's markers."""


class Endings:
    """The transactions of a shard that are in a Prepare state.

    The set of partitions that have their marker is soft state: markers may be repeated.
    """

    def __init__(
        self,
        partition: int,
        coordinator_epoch: int,
        ids: TransactionalIds,
        on_ending: OnEnding,
        fences: Fences,
    ) -> None:
        """
        coordinator_epoch: the leader epoch in which the shard was loaded. It is in all markers and
            fences earlier coordinators. A shard never adopts a later one, because the coordinator
            in that epoch may have decided otherwise.
        """
        self.partition = partition
        self.coordinator_epoch = coordinator_epoch
        self._ids = ids
        self._on_ending = on_ending
        self._fences = fences
        self._marked: dict[str, set[TopicPartition]] = {}
        self.is_unloaded = False

    def write_markers(self, transactional_id: str, now: Now) -> Decision:
        """Begin to write the markers; a transaction without partitions needs none."""
        ending = self._ids.transactions[transactional_id]
        # Also after a restart in the Prepare state: which markers were written is not in the log,
        # and a repeated marker is harmless (KAFKA-19999).
        self._marked[transactional_id] = set()
        if not ending.partitions:
            return self.complete(now, transactional_id, ending, lambda code: None)
        self._on_ending(self, transactional_id, ending)
        return Result()

    def is_ending(self, transactional_id: str, ending: Transaction) -> bool:
        """Return whether `ending` is still the state of the transactional id."""
        return not self.is_unloaded and self._ids.transactions.get(transactional_id) is ending

    def unmarked(self, transactional_id: str, ending: Transaction) -> frozenset[TopicPartition]:
        """Return the partitions without a marker; none if `ending` is no longer the state."""
        if not self.is_ending(transactional_id, ending):
            return frozenset()
        return ending.partitions - self._marked[transactional_id]

    def marked(
        self, transactional_id: str, ending: Transaction, partitions: Sequence[TopicPartition]
    ) -> None:
        """Note that these partitions have their marker."""
        if self.is_ending(transactional_id, ending):
            self._marked[transactional_id].update(partitions)

    def marked_partitions(self, transactional_id: str) -> set[TopicPartition]:
        """Return the partitions that have their marker."""
        return self._marked.get(transactional_id, set())

    def complete(
        self,
        now: Now,
        transactional_id: str,
        ending: Transaction,
        reply: Callable[[ErrorCode], None],
    ) -> Decision:
        """Write the Complete state; call with every partition marked.

        Replies CONCURRENT_TRANSACTIONS if another step is being written or a fence is pending.
        """
        if not self.is_ending(transactional_id, ending):
            reply(ErrorCode.NONE)
            return Result()
        # The Complete record drops the partitions. Without its marker a partition would keep the
        # transaction open, and no coordinator would know of it any more.
        assert ending.partitions <= self._marked[transactional_id], "a partition has no marker"
        commits = ending.state is TransactionState.PREPARE_COMMIT
        # The Complete record must not overtake another record of this transactional id: its replay
        # would restore the older state.
        if transactional_id in self._ids.pending or not (
            commits or self._ids.is_settled(transactional_id)
        ):
            # `fence` adds partitions and writes the markers of all.
            reply(ErrorCode.CONCURRENT_TRANSACTIONS)
            return Result()

        def committed(now: Now) -> Decision | None:
            # Only after the commit: a failed Complete record is written again, and must find every
            # partition marked.
            self._marked.pop(transactional_id, None)
            is_next = self._ids.has_pending_fence(transactional_id)
            return self.fence(now, transactional_id) if is_next else None

        def failed(now: Now, _: ErrorCode) -> None:
            if not ending.partitions:
                self._ids.try_again(now, transactional_id)

        step = completed(ending, now.wall_ms)
        return self._ids.step(now, transactional_id, step, committed, failed, reply=reply)

    def abort(self, now: Now, transactional_id: str, current: Transaction) -> Decision:
        """Abort an ongoing transaction past the epoch of its producer."""

        def committed(now: Now) -> Decision:
            return self.write_markers(transactional_id, now)

        def failed(now: Now, _: ErrorCode) -> None:
            self._ids.try_again(now, transactional_id)

        # The epoch rises with the decision to abort. Otherwise the producer, which has only paused,
        # could add records to the transaction between the decision and the markers (KIP-98).
        step = fenced(current, now.wall_ms)
        return self._ids.step(now, transactional_id, step, committed, failed)

    def fence(self, now: Now, transactional_id: str) -> Decision:
        """Abort the hanging transactions of a transactional id past all epochs of its producer.

        A failed fence is retried until it is written. A commit that has been decided is completed
        first: its epoch identifies its records, even after another restart.
        """
        fence = self._fences[transactional_id]
        current = self._ids.transactions[transactional_id]
        # The commit was promised to the client. Its markers come first, then the fence of later
        # transactions.
        if current.state is TransactionState.PREPARE_COMMIT:
            return Result() if current.partitions else self.write_markers(transactional_id, now)
        step = fenced_beyond(current, fence.partitions, fence.epoch, now.wall_ms)

        def committed(now: Now) -> Decision:
            self._fences.pop(transactional_id, None)
            return self.write_markers(transactional_id, now)

        def failed(now: Now, _: ErrorCode) -> None:
            self.fence_later(now, transactional_id)

        return self._ids.step(now, transactional_id, step, committed, failed)

    def fence_later(self, now: Now, transactional_id: str) -> None:
        """Retry the fence after its next pause."""
        pause_ms = self._fences[transactional_id].next_pause_ms()
        self._ids.try_again(now, transactional_id, pause_ms)
