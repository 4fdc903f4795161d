"""The transaction coordinator's interface to the broker: one method for each API.

A method returns a future: it is done at once, when the records are committed, or when a producer id
has been reserved. Methods do not raise; a rejected request gets a response with an error code. No
reference into a request's buffer is kept.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.memory_budget import Share
from lakelog.coordinator.host import Coordinator, ShardHost, TopicSizes
from lakelog.coordinator.keys import coordinator_key
from lakelog.coordinator.shard import PartitionLogs, Reply, SharedCount
from lakelog.coordinator.transaction.endings import FenceId, MarkerDriver, MarkerWriter
from lakelog.coordinator.transaction.hanging import Owner
from lakelog.coordinator.transaction.ids import Fence, Fences, TransactionConfig
from lakelog.coordinator.transaction.producers import (
    AddPartitions,
    EndTransaction,
    InitialiseProducer,
    ProducerReply,
    verify,
)
from lakelog.coordinator.transaction.requests import Needs, ProducerIdReservations, ProducerLogs
from lakelog.coordinator.transaction.shard import TransactionFilter, TransactionShard
from lakelog.coordinator.transaction.sink.requests import SinkRequests
from lakelog.coordinator.transaction.state import (
    OpenTransaction,
    TopicPartition,
    TransactionVersion,
)
from lakelog.coordinator.transaction.transitions import End, Producer
from lakelog.protocol.transactions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from lakelog.runtime.api import Clock, Tasks

TRANSACTION_TOPIC = "__transaction_state"

_BUMPING_END_SINCE = 5

PartitionCodes = dict[TopicPartition, ErrorCode]


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

    def describe(self, transactional_id: str) -> DescribedTransaction:
        """Return the state of one transactional id, or an error code."""
        try:
            return self._host.shard_of(transactional_id).describe(transactional_id)
        except KafkaError as error:
            return DescribedTransaction(transactional_id=transactional_id, error_code=error.code)

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


class TransactionCoordinator(Coordinator[TransactionShard]):
    """The coordinator of the transactional ids in the loaded partitions.

    Args:
        logs: access to the partitions of `__transaction_state`.
        markers: access to the partitions that transactions write to.
        producer_logs: the producers of these partitions.
        new_producer_id: reserves a producer id; raises `KafkaError`.
        forgotten_epochs_end: returns a producer id. Clients may hold epochs of lower producer ids
            that a power failure has removed from the log. The present setting of `durability` does
            not show this, because it may have changed.
        memory: budget of all state that clients cause.
    """

    def __init__(
        self,
        config: TransactionConfig,
        clock: Clock,
        tasks: Tasks,
        logs: PartitionLogs,
        topics: TopicSizes,
        markers: MarkerWriter,
        producer_logs: ProducerLogs,
        *,
        new_producer_id: Callable[[], Awaitable[int]],
        forgotten_epochs_end: Callable[[], int],
        memory: Share,
    ) -> None:
        self._config = config
        self._tasks = tasks
        self._topics = topics
        self._fences: Fences = {}
        self._id_count = SharedCount()
        self.hanging_found = 0
        """Number of hanging transactions found by this broker since its start."""
        needs = Needs(tasks, ProducerIdReservations(tasks, new_producer_id), producer_logs)
        self._host: ShardHost[TransactionShard] = ShardHost(
            TRANSACTION_TOPIC,
            logs,
            clock,
            tasks,
            lambda partition, leader_epoch: TransactionShard(
                partition,
                leader_epoch,
                config,
                self._markers.begin,
                self._id_count,
                self._fences,
                memory,
                forgotten_epochs_end=forgotten_epochs_end(),
            ),
            topics,
            config.partitions,
            empty_key_code=ErrorCode.INVALID_REQUEST,
            routing=coordinator_key,
            batch_bytes_max=config.batch_bytes_max,
            provide=lambda need, request: needs.provide(self._host.ask, need, request),
        )
        self._markers = MarkerDriver(markers, tasks, self._host.decide)
        self.admin = TransactionAdmin(self._host, clock)
        self.sinks = SinkRequests(self._host.ask, tasks, config)

    @property
    def id_count(self) -> int:
        """Number of transactional ids in the loaded partitions."""
        return self._id_count.total

    # Requests of producers

    def init_producer_id(self, request: InitProducerIdRequest) -> Reply[ProducerReply]:
        """Decide InitProducerId for a transactional id that is not empty (KIP-98, KIP-360)."""
        future = self._tasks.future()
        expected = None
        if request.producer_id >= 0:
            expected = Producer(request.producer_id, request.producer_epoch)
        asked = InitialiseProducer(
            future=future,
            key=request.transactional_id or "",
            expected=expected,
            timeout_ms=request.transaction_timeout_ms,
        )
        if 0 < asked.timeout_ms <= self._config.timeout_max_ms:
            self._host.ask(asked)
        else:
            asked.refuse(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        return future

    def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Iterable[TopicPartition],
        version: TransactionVersion,
    ) -> Reply[ErrorCode]:
        """Add partitions to the producer's transaction, which begins if there is none."""
        future = self._tasks.future()
        return self._ask(
            AddPartitions(
                future=future,
                key=transactional_id,
                producer=producer,
                partitions=list(partitions),
                version=version,
            )
        )

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        *,
        add: bool,
    ) -> Reply[PartitionCodes]:
        """Return for each partition whether this producer may write records to it (KIP-890).

        Args:
            add: whether to add the partitions to the transaction. If not, the reply is there at
                once, so nothing can change before an append that follows without waiting.
        """
        asked = list(partitions)
        producer = Producer(producer_id, producer_epoch)
        future = self._tasks.future()
        if add:
            self._host.ask(
                AddPartitions(
                    future=future,
                    key=transactional_id,
                    producer=producer,
                    partitions=asked,
                    version=TransactionVersion.BUMPING,
                    by_partition=True,
                )
            )
        else:
            future.set_result(self._verified(transactional_id, producer, asked))
        return future

    def _verified(
        self, transactional_id: str, producer: Producer, partitions: list[TopicPartition]
    ) -> PartitionCodes:
        try:
            shard = self._host.shard_of(transactional_id)
            return verify(shard, transactional_id, producer, partitions)
        except KafkaError as error:
            return dict.fromkeys(partitions, error.code)

    def end_txn(self, request: EndTxnRequest, version: int) -> Reply[EndTxnResponse]:
        """Decide EndTxn: commit or abort; the reply comes with the committed decision."""
        future = self._tasks.future()
        spoken = TransactionVersion.CLASSIC
        if version >= _BUMPING_END_SINCE:
            spoken = TransactionVersion.BUMPING
        producer = Producer(request.producer_id, request.producer_epoch)
        return self._ask(
            EndTransaction(
                future=future,
                key=request.transactional_id,
                end=End(producer, request.committed, spoken),
                version=version,
            )
        )

    # Hanging transactions when the broker starts

    @property
    def knows_all(self) -> bool:
        """Whether all partitions of `__transaction_state` are loaded here."""
        return len(self._host.active_shards()) == self._topics.partition_count(TRANSACTION_TOPIC)

    def owners(self) -> dict[int, Owner]:
        """Return the owners of all current and previous producer ids."""
        present: dict[int, Owner] = {}
        previous: dict[int, Owner] = {}
        for shard in self._host.active_shards():
            for transactional_id, transaction in shard.transactions.items():
                owner = Owner(transactional_id, transaction)
                present[transaction.producer_id] = previous[transaction.previous_producer_id] = (
                    owner
                )
        return previous | present

    def fence(self, transactional_id: str, open_txns: Sequence[OpenTransaction]) -> None:
        """Abort the hanging transactions of this id (`find_hanging`) past its producer's epochs.

        A fence that cannot be written now is retried.
        """
        self._fences[transactional_id] = Fence(open_txns)
        self._host.ask(FenceId(future=None, key=transactional_id))

    def hold_markers(self) -> None:
        """Delay all markers until `release_markers`."""
        self._markers.hold()

    def release_markers(self) -> None:
        """Write the delayed markers."""
        self._markers.release()
