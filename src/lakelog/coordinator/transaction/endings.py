"""How the transactions of a shard end: abort, markers, completion."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.requests import ClientRequest
from lakelog.coordinator.shard import LATER, Effect, Now, Result
from lakelog.coordinator.transaction.ids import Decision, Fences, TransactionalIds
from lakelog.coordinator.transaction.state import TopicPartition, Transaction, TransactionState
from lakelog.coordinator.transaction.transitions import completed, fenced, fenced_beyond


class Endings(Effect):
    """The transactions of a shard that are in a Prepare state; an effect of every step.

    The set of partitions that have their marker is soft state: markers may be repeated.
    """

    def __init__(
        self,
        partition: int,
        coordinator_epoch: int,
        ids: TransactionalIds,
        on_ending: Callable[[Endings, str, Transaction], None],
        fences: Fences,
    ) -> None:
        """
        on_ending: begins to write a transaction's markers.
        coordinator_epoch: the leader epoch in which the shard was loaded. It is in all markers and
            fences earlier coordinators. A shard never takes a later one, because the coordinator
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
        assert ending.state.is_ending, "the outcome is not decided"
        # Also after a restart in the Prepare state: which markers were written is not in the log,
        # and a repeated marker is harmless (KAFKA-19999).
        self._marked[transactional_id] = set()
        if not ending.partitions:
            return self.complete(now, transactional_id, ending)
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
        self, transactional_id: str, ending: Transaction, partitions: Iterable[TopicPartition]
    ) -> frozenset[TopicPartition]:
        """Note that these partitions have their marker; return the others, as `unmarked`."""
        if self.is_ending(transactional_id, ending):
            marked = self._marked[transactional_id]
            marked.update(partitions)
            assert marked <= ending.partitions, "a marker of another transaction"
        return self.unmarked(transactional_id, ending)

    def marked_partitions(self, transactional_id: str) -> set[TopicPartition]:
        """Return the partitions that have their marker."""
        return self._marked.get(transactional_id, set())

    def complete(self, now: Now, transactional_id: str, ending: Transaction) -> Decision:
        """Write the Complete state; call with every partition marked.

        The reply is CONCURRENT_TRANSACTIONS if another step is being written or a fence is pending.
        """
        if not self.is_ending(transactional_id, ending):
            return Result(reply=ErrorCode.NONE)
        # The Complete record drops the partitions. Without its marker a partition would keep the
        # transaction open, and no coordinator would know of it any more.
        assert ending.partitions <= self._marked[transactional_id], "a partition has no marker"
        commits = ending.state is TransactionState.PREPARE_COMMIT
        # The Complete record must not overtake another record of this transactional id: its replay
        # would restore the older state.
        if transactional_id in self._ids.pending or not (
            commits or self._ids.is_complete(transactional_id)
        ):
            # `fence` adds partitions and writes the markers of all.
            return Result(reply=ErrorCode.CONCURRENT_TRANSACTIONS)
        step = completed(ending, now.wall_ms)
        return self._ids.step(now, transactional_id, step, ErrorCode.NONE)

    def abort(self, now: Now, transactional_id: str, current: Transaction) -> Decision:
        """Abort an ongoing transaction past the epoch of its producer."""
        # The epoch rises with the decision to abort. Otherwise the producer, which has only paused,
        # could add records to the transaction between the decision and the markers (KIP-98).
        return self._ids.step(now, transactional_id, fenced(current, now.wall_ms))

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
        return self._ids.step(now, transactional_id, step)

    def committed(self, now: Now, result: Decision) -> list[Decision]:
        """Begin the markers of each committed Prepare state, or the fence after a Complete state.

        The state alone decides, so a shard that is loaded continues in the same way.
        """
        further: list[Decision] = []
        for name, step in result.records:
            if step is None:
                continue
            if step.state.is_ending:
                if name in self._fences and not self._ids.has_pending_fence(name):
                    del self._fences[name]
                if (decision := self.write_markers(name, now)).records:
                    further.append(decision)
            elif step.state.has_ended:
                # Only after the commit: a failed Complete record is written again, and must find
                # every partition marked.
                self._marked.pop(name, None)
                if name in self._fences and self._ids.has_pending_fence(name):
                    further.append(self.fence(now, name))
        return further

    def failed(self, now: Now, result: Decision, code: ErrorCode) -> None:
        """Retry the steps that neither a client nor the marker writer retries."""
        for record in result.records:
            self._ids.forget(now, record)
            name, step = record
            if step is None:
                continue
            # Without partitions there is no marker writer.
            if step.state.has_ended:
                if not self._ids.transactions[name].partitions:
                    self._ids.try_again(now, name)
            # An abort or a fence that no client has requested.
            elif step.state.is_ending and result.reply is LATER:
                if self._ids.has_pending_fence(name):
                    self.fence_later(now, name)
                else:
                    self._ids.try_again(now, name)

    def fence_later(self, now: Now, transactional_id: str) -> None:
        """Retry the fence after its next pause."""
        pause_ms = self._fences[transactional_id].next_pause_ms()
        self._ids.try_again(now, transactional_id, pause_ms)


@dataclass(slots=True, kw_only=True, eq=False)
class Completion(ClientRequest):
    """The marker writer's request to complete a transaction; see `Endings.complete`.

    future: gets whether the transaction needs no further attempt.
    """

    endings: Endings
    ending: Transaction

    def decide(self, shard: object, now: Now) -> Decision:
        return self.endings.complete(now, self.key, self.ending)

    def answer(self, reply: ErrorCode) -> None:
        if not self.future.done():  # the marker writer may have been stopped
            self.future.set_result(reply is ErrorCode.NONE)


class FenceId(ClientRequest):
    """A request to fence a transactional id after a start; see `Endings.fence`.

    Nothing waits for it: a fence that cannot be written now is retried.
    """

    __slots__ = ()

    def decide(self, shard: Any, now: Now) -> Decision:
        decision: Decision = shard.endings.fence(now, self.key)
        return decision

    def answer(self, reply: object) -> None:
        """Do nothing. A shard that cannot decide now fences the id when it is loaded."""
