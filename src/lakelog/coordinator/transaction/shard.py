"""The transactional ids of one partition of `__transaction_state`.

`ids` holds their states, `sinks` decides about sinks and their children, `endings` ends
transactions. This module implements the interface of a shard, timeouts and expiry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.memory_budget import Share
from lakelog.coordinator.shard import Now, Result, SharedCount
from lakelog.coordinator.transaction.config import TransactionConfig
from lakelog.coordinator.transaction.endings import Endings
from lakelog.coordinator.transaction.ids import (
    Decision,
    Fences,
    TimerKey,
    TimerKind,
    TransactionalIds,
)
from lakelog.coordinator.transaction.listing import (
    TransactionFilter,
    describe_child,
    describe_transaction,
    list_transaction,
)
from lakelog.coordinator.transaction.records import TransactionRecord, decode_record, encode_record
from lakelog.coordinator.transaction.sink.reply import sink_state
from lakelog.coordinator.transaction.sink.sinks import Sinks
from lakelog.coordinator.transaction.state import Sink, Transaction, TransactionState
from lakelog.protocol.transactions import DescribedTransaction, ListedTransaction


class TransactionShard:
    """One partition of `__transaction_state`.

    Args:
        leader_epoch: the epoch in which the partition was loaded; see `Endings`.
        on_ending: begins to write the markers of a transaction.
        id_count: see `TransactionalIds`.
        fences: pending fences of all partitions.
        memory: budget of all state that clients cause.
        forgotten_epochs_end: see `TransactionalIds`.
    """

    def __init__(
        self,
        partition: int,
        leader_epoch: int,
        config: TransactionConfig,
        on_ending: Callable[[Endings, str, Transaction], None],
        id_count: SharedCount,
        fences: Fences,
        memory: Share,
        *,
        forgotten_epochs_end: int,
    ) -> None:
        self._config = config
        self.ids = TransactionalIds(
            config, id_count, fences, memory, forgotten_epochs_end=forgotten_epochs_end
        )
        self.deadlines = self.ids.deadlines
        self.endings = Endings(partition, leader_epoch, self.ids, on_ending, fences)
        self.sinks = Sinks(self.ids, self.endings, config.batch_bytes_max)
        self.ids.follow_part = self.sinks.follow
        self.ids.effects = (self.endings,)
        self.replay = self.ids.replay

    @property
    def transactions(self) -> dict[str, Transaction]:
        """By transactional id."""
        return self.ids.transactions

    # The interface of a shard (`lakelog.coordinator.shard`)

    encode = staticmethod(encode_record)
    decode = staticmethod(decode_record)

    def replay_pending(self, record: TransactionRecord, producer_id: int) -> None:
        raise AssertionError("a transaction wrote to __transaction_state")

    def replay_end(self, producer_id: int, *, commit: bool) -> None:
        """Ignore a marker, which only an administrator can write to this topic."""

    def loaded(self, now: Now) -> list[Decision]:
        assert not self.ids.pending, "nothing is written while a shard loads"
        self.ids.count.open()
        self._schedule_expiry(now)
        for transactional_id in self.transactions:
            self.ids.arm(now, transactional_id)
        for transactional_id in filter(self.ids.has_pending_fence, self.transactions):
            self.endings.fence_later(now, transactional_id)
        ending = [
            transactional_id
            for transactional_id, transaction in self.transactions.items()
            if transaction.state.is_ending
        ]
        aborts = self.sinks.loaded(now)
        return aborts + [
            self.endings.write_markers(transactional_id, now) for transactional_id in ending
        ]

    def unloaded(self, code: ErrorCode) -> None:
        self.endings.is_unloaded = True
        self.ids.count.close()
        self.ids.account.close()

    def on_due(self, now: Now, key: TimerKey) -> list[Decision]:
        if key.kind is TimerKind.EXPIRY:
            self._schedule_expiry(now)
            return self._expire(now)
        return [self._time_out(now, key.transactional_id)]

    # Time

    def _time_out(self, now: Now, transactional_id: str) -> Decision:
        current = self.transactions.get(transactional_id)
        if current is None:
            return Result()
        if transactional_id in self.ids.pending:
            self.ids.try_again(now, transactional_id)
            return Result()
        if self.ids.has_pending_fence(transactional_id):
            return self.endings.fence(now, transactional_id)
        if current.state.is_ending and not current.partitions:
            return self.endings.write_markers(transactional_id, now)
        if current.state is not TransactionState.ONGOING:
            return Result()
        return self.endings.abort(now, transactional_id, current)

    def _schedule_expiry(self, now: Now) -> None:
        interval_ms = self._config.id_expiration_check_ms
        self.ids.deadlines.set(TimerKey(TimerKind.EXPIRY), now.tick_ms + interval_ms)

    def _expire(self, now: Now) -> list[Decision]:
        """Delete transactional ids that have been unused for `transactional.id.expiration.ms`.

        The children of a batch job go at the next check: each job has its own, and in a week they
        would use up the limit of transactional ids.
        """
        before_ms = now.wall_ms - self._config.id_expiration_ms
        left_ms = now.wall_ms - self._config.id_expiration_check_ms
        expired = [
            transactional_id
            for transactional_id, transaction in self.transactions.items()
            if (transaction.state is TransactionState.EMPTY or transaction.state.has_ended)
            and transaction.last_update_ms
            <= (left_ms if self.sinks.is_left(transactional_id) else before_ms)
            and not _is_permanent(transaction)
            and transactional_id not in self.ids.pending
            and not self.ids.has_pending_fence(transactional_id)
        ]
        return [self.ids.step(now, transactional_id, None) for transactional_id in expired]

    # Queries

    def describe(self, transactional_id: str) -> DescribedTransaction:
        """Return the description of a transaction.

        Raises `KafkaError(TRANSACTIONAL_ID_NOT_FOUND)`.
        """
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        marked = self.endings.marked_partitions(transactional_id)
        described = describe_transaction(
            transactional_id, transaction, transaction.partitions - marked
        )
        if isinstance(transaction.part, Sink):
            described.sink = sink_state(transaction.part)
            described.children = [
                describe_child(name, child) for name, child in self.sinks.children(transactional_id)
            ]
        return described

    def list_transactions(
        self, transaction_filter: TransactionFilter
    ) -> Iterator[ListedTransaction]:
        """Yield the transactions that pass the filters."""
        for transactional_id, transaction in self.transactions.items():
            if not transaction_filter.accepts(transactional_id, transaction):
                continue
            listed = list_transaction(transactional_id, transaction)
            if isinstance(transaction.part, Sink):
                listed.next_batch = transaction.part.next_batch
                listed.open_children = sum(1 for _ in self.sinks.children(transactional_id))
            yield listed


def _is_permanent(transaction: Transaction) -> bool:
    """Return whether the control record of a sink must outlive any outage of its query."""
    return isinstance(transaction.part, Sink) and not transaction.part.expires
