"""Asks the coordinator of a transaction, on whichever broker it is, about partitions (KIP-890).

A producer of transaction version 2 begins its next transaction while the markers of the previous
one are being written. The coordinator then answers CONCURRENT_TRANSACTIONS, mostly for a few
milliseconds, and is asked again for a short time: clients repeat a batch much later, some of them
only after seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import groupby

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.requests import complete
from lakelog.coordinator.transaction.coordinator import TRANSACTION_TOPIC, TransactionCoordinator
from lakelog.coordinator.transaction.state import TopicPartition
from lakelog.protocol.fetch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from lakelog.protocol.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    DescribedTransaction,
    DescribeTransactionsRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from lakelog.runtime.api import Tasks, pause
from lakelog.server.coordinators.leaders import PartitionLeaders

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


Epochs = Mapping[int, int]
"""Leader epochs by partition of `__transaction_state`."""


class KnownTransactions:
    """The transactions of all coordinators, by producer id.

    An answer is complete only if it is of each partition's present coordinator, with all its
    records. So each coordinator confirms before and after it that it leads its partitions in the
    leader epochs of this broker's image, and refuses a list while it has not loaded one of them.
    The image is read from the store first: a transaction may have begun after the image that this
    broker has, with a coordinator that is not in it.

    Args:
        local: the coordinator of this broker.
        catch_up: returns once the image has every entry that was committed before the call. Raises
            `KafkaError`.
    """

    def __init__(
        self,
        leaders: PartitionLeaders,
        local: TransactionCoordinator,
        catch_up: Callable[[], Awaitable[None]],
    ) -> None:
        self._leaders = leaders
        self._local = local
        self._catch_up = catch_up

    async def of(self, producer_ids: Collection[int]) -> dict[int, DescribedTransaction]:
        """Return the states of the transactional ids that have these producer ids.

        Raises `KafkaError` unless all coordinators have answered, `PeerError` among others.
        """
        await self._catch_up()
        by_producer: dict[int, DescribedTransaction] = {}
        for leader, epochs in self._leaders.led(TRANSACTION_TOPIC).items():
            if leader == self._leaders.node_id:
                states = self._own(epochs, producer_ids)
            else:
                states = await self._ask(leader, epochs, producer_ids)
            for state in states:
                if state.error_code:
                    raise KafkaError(ErrorCode(state.error_code), state.transactional_id)
                by_producer[state.producer_id] = state
        return by_producer

    async def fence(self, state: DescribedTransaction) -> None:
        """Raise the epoch of a transactional id, unless it has another one than `state` by now.

        A failure shows in the next answer of its coordinator. Raises `KafkaError`.
        """
        # The epoch is named (KIP-360). Without it, this request would fence a producer that has
        # begun since the answer, and abort its transaction.
        request = InitProducerIdRequest(
            transactional_id=state.transactional_id,
            transaction_timeout_ms=state.transaction_timeout_ms,
            producer_id=state.producer_id,
            producer_epoch=state.producer_epoch,
        )
        index = self._local.partition_for(state.transactional_id)
        leader = self._leaders.of(TRANSACTION_TOPIC, index)
        if leader == self._leaders.node_id:
            await self._local.init_producer_id(request)
        elif leader is not None:
            await self._leaders.request(leader, request)

    def _own(self, epochs: Epochs, producer_ids: Collection[int]) -> list[DescribedTransaction]:
        if any(self._local.leader_epoch(index) != epoch for index, epoch in epochs.items()):
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        admin = self._local.admin
        names = _names(admin.list_transactions(_list_request(producer_ids)))
        return [admin.describe(name) for name in names]

    async def _ask(
        self, leader: int, epochs: Epochs, producer_ids: Collection[int]
    ) -> list[DescribedTransaction]:
        await self._confirm(leader, epochs)
        names = _names(await self._leaders.request(leader, _list_request(producer_ids)))
        states: list[DescribedTransaction] = []
        if names:
            request = DescribeTransactionsRequest(transactional_ids=names)
            states = (await self._leaders.request(leader, request)).transaction_states
        await self._confirm(leader, epochs)
        return states

    async def _confirm(self, leader: int, epochs: Epochs) -> None:
        """Raise `KafkaError` unless the broker leads the partitions in these leader epochs."""
        partitions = [
            OffsetForLeaderPartition(
                partition=index, current_leader_epoch=epoch, leader_epoch=epoch
            )
            for index, epoch in epochs.items()
        ]
        topic = OffsetForLeaderTopic(topic=TRANSACTION_TOPIC, partitions=partitions)
        request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic])
        response = await self._leaders.request(leader, request)
        assert isinstance(response, OffsetForLeaderEpochResponse)
        answered = {
            partition.partition: partition.error_code for partition in response.topics[0].partitions
        }
        for index in epochs:
            code = ErrorCode(answered.get(index, ErrorCode.UNKNOWN_SERVER_ERROR))
            if code is not ErrorCode.NONE:
                raise KafkaError(code, f"{TRANSACTION_TOPIC}-{index} on broker {leader}")


def _list_request(producer_ids: Collection[int]) -> ListTransactionsRequest:
    return ListTransactionsRequest(producer_id_filters=sorted(producer_ids))


def _names(response: ListTransactionsResponse) -> list[str]:
    if response.error_code:
        raise KafkaError(ErrorCode(response.error_code))
    return [transaction.transactional_id for transaction in response.transaction_states]


BATCH_MAX = 500
"""Transactions of one request."""

Ask = Callable[[AddPartitionsToTxnRequest], Awaitable[AddPartitionsToTxnResponse]]
_Waiting = tuple[AddPartitionsToTxnTransaction, asyncio.Future[Codes]]


class VerificationQueue:
    """The transactions for one broker, oldest first.

    One AddPartitionsToTxn is under way at a time. Transactions that come meanwhile wait, and the
    next request has them all: the coordinator handles them side by side, and one request in turn
    would wait for the replicas once for each transaction. A request has each transactional id once,
    by which its result is found.

    Source: `AddPartitionsToTxnManager` of Apache Kafka.

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
