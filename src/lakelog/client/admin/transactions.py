"""Transactions: their list, partitions and producers, and the abort of a hanging one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakelog.base.errors import error_code
from lakelog.client.cluster import TRANSACTION, Cluster
from lakelog.client.errors import check, refused
from lakelog.client.offsets import TopicPartition
from lakelog.protocol.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from lakelog.protocol.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from lakelog.protocol.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from lakelog.protocol.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

ONGOING = "Ongoing"


@dataclass(slots=True, frozen=True)
class TransactionListing:
    """A transactional id in the list. `node_id` is its coordinator."""

    transactional_id: str
    producer_id: int
    state: str
    node_id: int


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


@dataclass(slots=True, frozen=True)
class ActiveProducer:
    """A partition's state of a producer. `txn_start_offset` is -1 without a transaction."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    txn_start_offset: int


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
        request = ListTransactionsRequest(
            state_filters=[*states],
            producer_id_filters=[*producer_ids],
            duration_filter=longer_than_ms,
            transactional_id_pattern=pattern,
        )
        found = []
        for node in [*self._cluster.refresh([]).brokers]:
            response = self._cluster.ask(node, request, ListTransactionsResponse)
            check(response.error_code, f"transactions of broker {node}")
            found += [
                TransactionListing(
                    row.transactional_id, row.producer_id, row.transaction_state, node
                )
                for row in response.transaction_states
            ]
        return sorted(found, key=lambda row: row.transactional_id)

    def describe(self, transactional_id: str) -> Transaction:
        """Return the state of a transactional id. Raises TRANSACTIONAL_ID_NOT_FOUND."""
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])

        def work() -> Transaction:
            response = self._cluster.ask_coordinator(
                transactional_id, request, DescribeTransactionsResponse, key_type=TRANSACTION
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
            )

        return self._cluster.retrying_coordinator(transactional_id, work, TRANSACTION)

    def producers(self, partition: TopicPartition) -> Sequence[ActiveProducer]:
        """Return the recent producers of a partition, ordered by producer id.

        Raises `TopicNotFoundError`, `PartitionNotFoundError`, and `ClientError` (KIP-664).
        """
        name, index = partition
        topic = TopicRequest(name=name, partition_indexes=[index])
        request = DescribeProducersRequest(topics=[topic])

        def work() -> Sequence[ActiveProducer]:
            node = self._cluster.leader(name, index).node_id
            response = self._cluster.ask(node, request, DescribeProducersResponse)
            row = response.topics[0].partitions[0]
            check(row.error_code, said=row.error_message)
            return [
                ActiveProducer(
                    each.producer_id,
                    each.producer_epoch,
                    each.last_sequence,
                    each.last_timestamp,
                    each.coordinator_epoch,
                    each.current_txn_start_offset,
                )
                for each in row.active_producers
            ]

        return sorted(self._cluster.retrying(work), key=lambda row: row.producer_id)

    def abort(self, partition: TopicPartition, producer: ActiveProducer) -> None:
        """Abort a producer's open transaction in one partition, without its coordinator.

        Only for a hanging transaction, which its coordinator no longer knows (KIP-664). Raises
        INVALID_PRODUCER_EPOCH if the producer has begun another transaction meanwhile.
        """
        name, index = partition
        marker = WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transaction_result=False,
            coordinator_epoch=max(producer.coordinator_epoch, 0),
            topics=[WritableTxnMarkerTopic(name=name, partition_indexes=[index])],
        )

        def work() -> None:
            node = self._cluster.leader(name, index).node_id
            request = WriteTxnMarkersRequest(markers=[marker])
            response = self._cluster.ask(node, request, WriteTxnMarkersResponse)
            code = response.markers[0].topics[0].partitions[0].error_code
            if code:
                raise refused(error_code(code), f"marker for {name}-{index}")

        self._cluster.retrying(work)
