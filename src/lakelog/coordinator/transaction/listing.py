"""DescribeTransactions (version 0) and ListTransactions (0 to 2).

The pattern of ListTransactions comes from a client. RE2 matches it in time linear in the length of
the id, so no pattern can block the broker.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.transaction.state import TopicPartition, Transaction, TransactionState
from lakelog.protocol.commit_sets import ChildState
from lakelog.protocol.transactions import (
    DescribedTransaction,
    ListedTransaction,
    ListTransactionsRequest,
    TopicData,
)

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
