"""Transactions that wait for the answer of a coordinator on one other broker (KIP-890).

One AddPartitionsToTxn is under way at a time. Transactions that come meanwhile wait, and the next
request has them all: the coordinator handles them side by side, and one request in turn would wait
for the replicas once for each transaction. A request has each transactional id once, by which its
result is found.

Source: `AddPartitionsToTxnManager` of Apache Kafka.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.requests import complete
from lakelog.coordinator.transaction.state import TopicPartition
from lakelog.protocol.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTransaction,
)
from lakelog.runtime.api import Tasks

BATCH_MAX = 500
"""Transactions of one request."""

Codes = Mapping[TopicPartition, ErrorCode]
Ask = Callable[[AddPartitionsToTxnRequest], Awaitable[AddPartitionsToTxnResponse]]
_Waiting = tuple[AddPartitionsToTxnTransaction, asyncio.Future[Codes]]


class VerificationQueue:
    """The transactions for one broker, oldest first.

    Args:
        ask: sends a request to the broker; raises `KafkaError`.
        name: of the broker, for the task's name.
    """

    def __init__(self, ask: Ask, tasks: Tasks, name: str) -> None:
        self._ask = ask
        self._tasks = tasks
        self._name = name
        self._waiting: list[_Waiting] = []
        self._sending: asyncio.Task[None] | None = None

    def submit(self, transaction: AddPartitionsToTxnTransaction) -> asyncio.Future[Codes]:
        """Return a future of the code for each partition.

        Without a result the code is COORDINATOR_NOT_AVAILABLE.
        """
        future: asyncio.Future[Codes] = self._tasks.future()
        self._waiting.append((transaction, future))
        if self._sending is None:
            self._sending = self._tasks.spawn(self._send(), name=f"transactions to {self._name}")
        return future

    async def _send(self) -> None:
        """Send requests until no transaction waits."""
        batch: list[_Waiting] = []
        try:
            while self._waiting:
                batch = self._next_batch()
                request = AddPartitionsToTxnRequest(
                    transactions=[transaction for transaction, _ in batch]
                )
                _complete(batch, _results(await self._ask(request)))
                batch = []
        except KafkaError:
            pass
        finally:
            # A broker that does not answer in time must not keep the waiting transactions, one
            # request after the other, for as long again.
            _complete(batch + self._waiting, {})
            self._waiting = []
            self._sending = None

    def _next_batch(self) -> list[_Waiting]:
        """Remove and return the next transactions to ask about."""
        batch: dict[str, _Waiting] = {}
        left = []
        for waiting in self._waiting:
            name = waiting[0].transactional_id
            if name in batch or len(batch) >= BATCH_MAX:
                left.append(waiting)
            else:
                batch[name] = waiting
        self._waiting = left
        return list(batch.values())


def _complete(batch: list[_Waiting], results: Mapping[str, Codes]) -> None:
    for transaction, future in batch:
        codes = results.get(transaction.transactional_id, {})
        missing = ErrorCode.COORDINATOR_NOT_AVAILABLE
        complete(
            future,
            {
                (topic.name, index): codes.get((topic.name, index), missing)
                for topic in transaction.topics
                for index in topic.partitions
            },
        )


def _results(response: AddPartitionsToTxnResponse) -> dict[str, Codes]:
    return {result.transactional_id: _codes(result) for result in response.results_by_transaction}


def _codes(result: AddPartitionsToTxnResult) -> Codes:
    return {
        (topic.name, partition.partition_index): ErrorCode(partition.partition_error_code)
        for topic in result.topic_results
        for partition in topic.results_by_partition
    }
