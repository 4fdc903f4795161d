"""Transactions: their list, partitions and producers, and the abort of a hanging one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakelog.base.errors import ErrorCode, KafkaError, error_code
from lakelog.client.cluster import TRANSACTION, Cluster
from lakelog.client.errors import check, refused
from lakelog.client.offsets import TopicPartition
from lakelog.client.view import NO_LEADER
from lakelog.protocol import transactions as messages

ONGOING = "Ongoing"
RUNNING = (ONGOING, "PrepareCommit", "PrepareAbort")
"""States of a transactional id with a transaction that has not ended in all its partitions."""


@dataclass(slots=True, frozen=True)
class TransactionListing:
    """A transactional id in the list. `node_id` is its coordinator.

    next_batch: of a sink, -1 before its first commit; None for any other id. open_children: the
    number of its unfinished tasks.
    """

    transactional_id: str
    producer_id: int
    state: str
    node_id: int
    next_batch: int | None = None
    open_children: int = 0


@dataclass(slots=True, frozen=True)
class SinkChild:
    """A task's transaction that has not ended.

    state: `Ongoing`, or `PrepareCommit` or `PrepareAbort` while its markers are being written.
    start_ms: milliseconds since the epoch. partitions: the number of its partitions.
    """

    transactional_id: str
    state: str
    start_ms: int
    partitions: int


@dataclass(slots=True, frozen=True)
class SinkControl:
    """The control record of a sink. next_batch: -1 before its first commit.

    content: as it was given to the last commit; empty before, and from brokers that do not keep it.
    """

    query_id: str
    run_id: str
    next_batch: int
    children: tuple[SinkChild, ...]
    content: bytes = b""


@dataclass(slots=True, frozen=True)
class Transaction:
    """The state of a transactional id. Times are in milliseconds.

    start_ms: -1 before the first transaction. partitions: the partitions of the present transaction
    that have no marker yet.
    """

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int
    partitions: tuple[TopicPartition, ...]
    sink: SinkControl | None = None


@dataclass(slots=True, frozen=True)
class ActiveProducer:
    """A partition's state of a producer. `txn_start_offset` is -1 without a transaction."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    txn_start_offset: int


@dataclass(slots=True, frozen=True)
class HangingTransaction:
    """A transaction that is open in a partition and that no coordinator knows (KIP-664)."""

    topic: str
    partition: int
    producer: ActiveProducer


_Found = list[HangingTransaction]
_Indexes = dict[str, list[int]]
"""Partitions by topic."""


class Transactions:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def list(
        self,
        *,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        longer_than_ms: int = -1,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        """Return the transactional ids of all brokers that match all given filters, ordered by id.

        Raises INVALID_REGULAR_EXPRESSION.
        """
        request = messages.ListTransactionsRequest(
            state_filters=[*states],
            producer_id_filters=[*producer_ids],
            duration_filter=longer_than_ms,
            transactional_id_pattern=pattern,
        )
        listings = []
        for node in [*self._cluster.refresh([]).brokers]:
            response = self._cluster.ask(node, request, messages.ListTransactionsResponse)
            check(response.error_code, f"transactions of broker {node}")
            listings += [
                TransactionListing(
                    row.transactional_id,
                    row.producer_id,
                    row.transaction_state,
                    node,
                    None if row.next_batch == messages.NOT_A_SINK else row.next_batch,
                    row.open_children,
                )
                for row in response.transaction_states
            ]
        return sorted(listings, key=lambda row: row.transactional_id)

    def describe(self, transactional_id: str) -> Transaction:
        """Return the state of a transactional id. Raises TRANSACTIONAL_ID_NOT_FOUND."""
        request = messages.DescribeTransactionsRequest(transactional_ids=[transactional_id])

        def work() -> Transaction:
            response = self._cluster.ask_coordinator(
                transactional_id,
                request,
                messages.DescribeTransactionsResponse,
                key_type=TRANSACTION,
            )
            (row,) = response.transaction_states
            check(row.error_code, f"transactional id {transactional_id!r}")
            return Transaction(
                row.transactional_id,
                row.transaction_state,
                row.producer_id,
                row.producer_epoch,
                row.transaction_timeout_ms,
                row.transaction_start_time_ms,
                tuple((topic.topic, part) for topic in row.topics for part in topic.partitions),
                sink_control(row),
            )

        return self._cluster.retrying_coordinator(transactional_id, work, TRANSACTION)

    def producers(self, partition: TopicPartition) -> Sequence[ActiveProducer]:
        """Return the recent producers of a partition, ordered by producer id.

        Raises `TopicNotFoundError`, `PartitionNotFoundError`, and `ClientError` (KIP-664).
        """
        name, index = partition
        topic = messages.TopicRequest(name=name, partition_indexes=[index])
        request = messages.DescribeProducersRequest(topics=[topic])

        def work() -> Sequence[ActiveProducer]:
            node = self._cluster.leader(name, index).node_id
            response = self._cluster.ask(node, request, messages.DescribeProducersResponse)
            row = response.topics[0].partitions[0]
            check(row.error_code, said=row.error_message)
            return [_active(producer) for producer in row.active_producers]

        return sorted(self._cluster.retrying(work), key=lambda row: row.producer_id)

    def hanging(self, topics: Sequence[str] = ()) -> Sequence[HangingTransaction]:
        """Return the hanging transactions of topics, or of all topics, by partition and producer.

        Raises `TopicNotFoundError`, and `ClientError` (KIP-664).
        """
        open_ = self._open(topics)
        if not open_:
            return []
        registered = self._registered({txn.producer.producer_id for txn in open_})
        unknown = [
            txn
            for txn in open_
            if (txn.producer.producer_id, txn.topic, txn.partition) not in registered
        ]
        # A transaction that its coordinator has just ended is unknown to it, and not open any more.
        still = set(map(_key, self._open(topics)))
        return [txn for txn in unknown if _key(txn) in still]

    def _registered(self, producer_ids: set[int]) -> set[tuple[int, str, int]]:
        """Return producer id, topic and partition of all transactions of these producers."""
        rows = self._cluster.retrying(
            lambda: self.list(states=RUNNING, producer_ids=sorted(producer_ids))
        )
        registered = set()
        for row in rows:
            try:
                described = self.describe(row.transactional_id)
            except KafkaError as error:
                if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    raise
                continue
            registered |= {
                (described.producer_id, *partition) for partition in described.partitions
            }
        return registered

    def _open(self, topics: Sequence[str]) -> Sequence[HangingTransaction]:
        """Return the open transactions of topics, or of all topics; leaders answer for theirs."""

        def work() -> Sequence[HangingTransaction]:
            transactions: _Found = []
            for leader, by_topic in sorted(self._by_leader(topics).items()):
                request = messages.DescribeProducersRequest(
                    topics=[
                        messages.TopicRequest(name=name, partition_indexes=indexes)
                        for name, indexes in sorted(by_topic.items())
                    ]
                )
                response = self._cluster.ask(leader, request, messages.DescribeProducersResponse)
                for topic in response.topics:
                    for row in topic.partitions:
                        check(row.error_code, said=row.error_message)
                        transactions += [
                            HangingTransaction(topic.name, row.partition_index, producer)
                            for producer in map(_active, row.active_producers)
                            if producer.txn_start_offset >= 0
                        ]
            return sorted(
                transactions, key=lambda txn: (txn.topic, txn.partition, txn.producer.producer_id)
            )

        return self._cluster.retrying(work)

    def _by_leader(self, topics: Sequence[str]) -> dict[int, _Indexes]:
        """Return the partitions that have a leader, by leader and topic."""
        view = self._cluster.refresh(topics or None)
        by_leader: dict[int, _Indexes] = {}
        for name in topics or sorted(view.topics):
            for partition in self._cluster.topic(name).partitions:
                if partition.leader != NO_LEADER:
                    by_leader.setdefault(partition.leader, {}).setdefault(name, []).append(
                        partition.partition
                    )
        return by_leader

    def abort(self, partition: TopicPartition, producer: ActiveProducer) -> None:
        """Abort a producer's open transaction in one partition, without its coordinator.

        Only for a hanging transaction, which its coordinator no longer knows (KIP-664). Raises
        INVALID_PRODUCER_EPOCH if the producer has begun another transaction meanwhile.
        """
        name, index = partition
        marker = messages.WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transaction_result=False,
            coordinator_epoch=max(producer.coordinator_epoch, 0),
            topics=[messages.WritableTxnMarkerTopic(name=name, partition_indexes=[index])],
        )

        def work() -> None:
            node = self._cluster.leader(name, index).node_id
            request = messages.WriteTxnMarkersRequest(markers=[marker])
            response = self._cluster.ask(node, request, messages.WriteTxnMarkersResponse)
            code = response.markers[0].topics[0].partitions[0].error_code
            if code:
                raise refused(error_code(code), f"marker for {name}-{index}")

        self._cluster.retrying(work)


def sink_control(row: messages.DescribedTransaction) -> SinkControl | None:
    """Return the control record in a response; `None` if the id is not that of a sink."""
    if row.sink is None:
        return None
    children = tuple(
        SinkChild(child.transactional_id, child.state, child.start_time_ms, child.partitions)
        for child in row.children
    )
    sink = row.sink
    return SinkControl(sink.query_id, sink.run_id, sink.next_batch, children, bytes(sink.content))


def _active(row: messages.ProducerState) -> ActiveProducer:
    return ActiveProducer(
        row.producer_id,
        row.producer_epoch,
        row.last_sequence,
        row.last_timestamp,
        row.coordinator_epoch,
        row.current_txn_start_offset,
    )


def _key(txn: HangingTransaction) -> tuple[str, int, int, int]:
    return txn.topic, txn.partition, txn.producer.producer_id, txn.producer.txn_start_offset
