"""Asks the coordinator of a transaction, on whichever broker it is, about partitions (KIP-890)."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from itertools import groupby

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.transaction.coordinator import TRANSACTION_TOPIC, TransactionCoordinator
from lakelog.coordinator.transaction.state import TopicPartition
from lakelog.protocol.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from lakelog.server.coordinators.leaders import PartitionLeaders

Codes = Mapping[TopicPartition, ErrorCode]


class ClusterVerification:
    """The transaction coordinators of the cluster, for the leaders of partitions.

    Args:
        local: the coordinator of this broker.
    """

    def __init__(self, leaders: PartitionLeaders, local: TransactionCoordinator) -> None:
        self._leaders = leaders
        self._local = local

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
        return self._ask(leader, transaction, partitions)

    async def _ask(
        self,
        leader: int,
        transaction: AddPartitionsToTxnTransaction,
        partitions: Sequence[TopicPartition],
    ) -> Codes:
        codes = dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        request = AddPartitionsToTxnRequest(transactions=[transaction])
        with suppress(KafkaError):
            codes |= _codes(await self._leaders.request(leader, request))
        return codes


def _topics(partitions: Sequence[TopicPartition]) -> list[AddPartitionsToTxnTopic]:
    return [
        AddPartitionsToTxnTopic(name=name, partitions=[index for _, index in of_topic])
        for name, of_topic in groupby(sorted(partitions), key=lambda partition: partition[0])
    ]


def _codes(response: AddPartitionsToTxnResponse) -> dict[TopicPartition, ErrorCode]:
    return {
        (topic.name, each.partition_index): ErrorCode(each.partition_error_code)
        for result in response.results_by_transaction
        for topic in result.topic_results
        for each in topic.results_by_partition
    }
