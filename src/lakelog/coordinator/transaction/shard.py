"""The transactional ids of one partition of `__transaction_state`.

`ids` holds their states, `sinks` decides about sinks and their children, `endings` ends
transactions. This module implements the interface of a shard, timeouts and expiry, and describes
transactions (DescribeTransactions, version 0, and ListTransactions, 0 to 2). The pattern of
ListTransactions comes from a client. RE2 matches it in time linear in the length of the id, so no
pattern can block the broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.memory_budget import Share
from lakelog.coordinator.shard import Now, Result, SharedCount
from lakelog.coordinator.transaction.endings import Endings
from lakelog.coordinator.transaction.ids import (
    Decision,
    Fences,
    TimerKey,
    TimerKind,
    TransactionalIds,
    TransactionConfig,
)
from lakelog.coordinator.transaction.records import TransactionRecord, decode_record, encode_record
from lakelog.coordinator.transaction.sink.sinks import Sinks
from lakelog.coordinator.transaction.state import (
    Sink,
    TopicPartition,
    Transaction,
    TransactionState,
    sink_state,
)
from lakelog.protocol.commit_sets import ChildState
from lakelog.protocol.transactions import (
    DescribedTransaction,
    ListedTransaction,
    ListTransactionsRequest,
    TopicData,
)


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


_STATES = {state.label for state in TransactionState}
_PATTERN_MEMORY_BYTES = 1 << 20


def describe_transaction(
    transactional_id: str, transaction: Transaction, partitions: Iterable[TopicPartition]
) -> DescribedTransaction:
    """Return the description of a transaction; `partitions` are the partitions without a marker."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return DescribedTransaction(
        transactional_id=transactional_id,
        transaction_state=transaction.state.label,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[TopicData(topic=name, partitions=ids) for name, ids in topics.items()],
    )


def describe_child(transactional_id: str, transaction: Transaction) -> ChildState:
    """Return the entry of a child in the description of its sink."""
    return ChildState(
        transactional_id=transactional_id,
        state=transaction.state.label,
        start_time_ms=transaction.start_ms,
        partitions=len(transaction.partitions),
    )


class TransactionFilter:
    """The filters of ListTransactions.

    Raises `KafkaError(INVALID_REGULAR_EXPRESSION)` for a malformed pattern.
    """

    def __init__(self, request: ListTransactionsRequest, now_ms: int) -> None:
        self._states = _STATES.intersection(request.state_filters)
        self.unknown_states = [
            state_filter for state_filter in request.state_filters if state_filter not in _STATES
        ]
        self._any_state = not request.state_filters
        self._producer_ids = frozenset(request.producer_id_filters)
        self._duration_ms = request.duration_filter
        self._now_ms = now_ms
        self._pattern = _compiled(request.transactional_id_pattern)

    def accepts(self, transactional_id: str, transaction: Transaction) -> bool:
        """Return whether the transaction passes all filters."""
        if not self._any_state and transaction.state.label not in self._states:
            return False
        if self._producer_ids and transaction.producer_id not in self._producer_ids:
            return False
        if self._duration_ms >= 0 and self._now_ms - transaction.start_ms <= self._duration_ms:
            return False
        return self._pattern is None or self._pattern.fullmatch(transactional_id) is not None


def _compiled(pattern: str | None) -> Any:
    if not pattern:
        return None
    import re2  # rarely needed, and its import would delay the start of the broker

    options = re2.Options()
    options.max_mem = _PATTERN_MEMORY_BYTES
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from None


def list_transaction(transactional_id: str, transaction: Transaction) -> ListedTransaction:
    """Return the transaction's entry of ListTransactions."""
    return ListedTransaction(
        transactional_id=transactional_id,
        producer_id=transaction.producer_id,
        transaction_state=transaction.state.label,
    )
