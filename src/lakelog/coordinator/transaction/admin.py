"""Requests of administrators about transactions: describe and list (KIP-664)."""

from __future__ import annotations

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.host import ShardHost
from lakelog.coordinator.transaction.listing import TransactionFilter
from lakelog.coordinator.transaction.shard import TransactionShard
from lakelog.protocol.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from lakelog.protocol.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from lakelog.runtime.api import Clock


class TransactionAdmin:
    """The transactions coordinated by this broker, read only."""

    def __init__(self, host: ShardHost[TransactionShard], clock: Clock) -> None:
        self._host = host
        self._clock = clock

    def describe_transactions(
        self, request: DescribeTransactionsRequest
    ) -> DescribeTransactionsResponse:
        """Return the state of each transactional id, or its own error code."""
        names = dict.fromkeys(request.transactional_ids)
        states = [self.describe(transactional_id) for transactional_id in names]
        return DescribeTransactionsResponse(transaction_states=states)

    def describe(self, transactional_id: str) -> TransactionState:
        """Return the state of one transactional id, or an error code."""
        try:
            return self._host.shard_of(transactional_id).describe(transactional_id)
        except KafkaError as error:
            return TransactionState(transactional_id=transactional_id, error_code=error.code)

    def list_transactions(self, request: ListTransactionsRequest) -> ListTransactionsResponse:
        """Return the transactional ids coordinated by this broker that match the filters.

        The response has COORDINATOR_LOAD_IN_PROGRESS while a led partition is not loaded: a
        transaction that is absent from a response counts as hanging. It has
        INVALID_REGULAR_EXPRESSION for a malformed pattern.
        """
        if self._host.loading or not self._host.is_complete:
            return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        try:
            transaction_filter = TransactionFilter(request, self._clock.wall_ms())
        except KafkaError as error:
            return ListTransactionsResponse(error_code=error.code)
        transactions = [
            transaction
            for shard in self._host.active_shards()
            for transaction in shard.list_transactions(transaction_filter)
        ]
        return ListTransactionsResponse(
            unknown_state_filters=transaction_filter.unknown_states, transaction_states=transactions
        )
