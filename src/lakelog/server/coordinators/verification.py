"""Asks the coordinator of a transaction, on whichever broker it is, about partitions (KIP-890).

A producer of transaction version 2 begins its next transaction while the markers of the previous
one are being written. The coordinator then answers CONCURRENT_TRANSACTIONS, mostly for a few
milliseconds, and is asked again for a short time: clients repeat a batch much later, some of them
only after seconds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from itertools import groupby

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.transaction.coordinator import TRANSACTION_TOPIC, TransactionCoordinator
from lakelog.coordinator.transaction.state import TopicPartition
from lakelog.protocol.transactions import AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction
from lakelog.runtime.api import Tasks, pause
from lakelog.server.coordinators.leaders import PartitionLeaders
from lakelog.server.coordinators.verification_queue import VerificationQueue

Codes = Mapping[TopicPartition, ErrorCode]

_REPEATED_AFTER_S = 0.02
_REPEATED_TIMES = 5
"""As with the defaults of `add.partitions.to.txn.retry.backoff.ms` and its maximum in Kafka."""


class ClusterVerification:
    """The transaction coordinators of the cluster, for the leaders of partitions.

    Args:
        local: the coordinator of this broker.
    """

    def __init__(
        self, leaders: PartitionLeaders, local: TransactionCoordinator, tasks: Tasks
    ) -> None:
        self._leaders = leaders
        self._local = local
        self._tasks = tasks
        self._queues: dict[int, VerificationQueue] = {}
        """By node id of the coordinator."""

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        add: bool,
    ) -> Awaitable[Codes]:
        """Return for each partition whether this producer may write records to it.

        add: whether to add the partitions to the transaction.

        Without a response the code is COORDINATOR_NOT_AVAILABLE: a producer retries, and adding a
        partition twice is harmless.
        """
        ask = partial(self._ask, transactional_id, producer_id, producer_epoch, partitions, add=add)
        return self._repeated(ask) if add else ask()

    async def _repeated(self, ask: Callable[[], Awaitable[Codes]]) -> Codes:
        """Ask again while the previous transaction ends."""
        codes = await ask()
        for _ in range(_REPEATED_TIMES):
            if ErrorCode.CONCURRENT_TRANSACTIONS not in codes.values():
                break
            await pause(self._tasks, _REPEATED_AFTER_S)
            codes = await ask()
        return codes

    def _ask(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        add: bool,
    ) -> Awaitable[Codes]:
        own = self._local.verify(transactional_id, producer_id, producer_epoch, partitions, add=add)
        # The coordinator knows its own ids; the image is read only for ids of other coordinators.
        if not own.done() or ErrorCode.NOT_COORDINATOR not in own.result().values():
            return own
        leader = self._leaders.of(TRANSACTION_TOPIC, self._local.partition_for(transactional_id))
        if leader is None or leader == self._leaders.node_id:
            return own
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            verify_only=not add,
            topics=_topics(partitions),
        )
        return self._queue(leader).submit(transaction)

    def _queue(self, leader: int) -> VerificationQueue:
        queue = self._queues.get(leader)
        if queue is None:
            ask = partial(self._leaders.request, leader)
            queue = self._queues[leader] = VerificationQueue(ask, self._tasks, str(leader))
        return queue


def _topics(partitions: Sequence[TopicPartition]) -> list[AddPartitionsToTxnTopic]:
    return [
        AddPartitionsToTxnTopic(name=name, partitions=[index for _, index in of_topic])
        for name, of_topic in groupby(sorted(partitions), key=lambda partition: partition[0])
    ]
