"""Asks the coordinator of a transaction, on whichever broker it is, about partitions (KIP-890)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.transaction.coordinator import TRANSACTION_TOPIC, TransactionCoordinator
from lakelog.coordinator.transaction.state import TopicPartition
from lakelog.metadata.image import MetadataImage
from lakelog.protocol.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from lakelog.server.peers.errors import PeerError
from lakelog.server.peers.peer import Peer

Codes = Mapping[TopicPartition, ErrorCode]


class ClusterVerification:
    """The transaction coordinators of the cluster, for the leaders of partitions.

    Args:
        image: returns the metadata image of this broker.
        local: the coordinator of this broker.
        peer: returns the connection to a broker, None without an address.
        timeout_s: time for the response of another broker.
    """

    def __init__(
        self,
        node_id: int,
        image: Callable[[], MetadataImage],
        local: TransactionCoordinator,
        peer: Callable[[int], Peer | None],
        timeout_s: float,
    ) -> None:
        self._node_id = node_id
        self._image = image
        self._local = local
        self._peer = peer
        self._timeout_s = timeout_s

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        add: bool,
    ) -> Codes:
        """Return for each partition whether this producer may write records to it.

        add: whether to add the partitions to the transaction.

        Without a response the code is COORDINATOR_NOT_AVAILABLE: a producer retries, and adding a
        partition twice is harmless.
        """
        leader = self._leader(transactional_id)
        if leader in (None, self._node_id):
            found: Codes = await self._local.verify(
                transactional_id, producer_id, producer_epoch, partitions, add=add
            )
            return found
        peer = self._peer(leader) if leader is not None and leader >= 0 else None
        unavailable = dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if peer is None:
            return unavailable
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            verify_only=not add,
            topics=_topics(partitions),
        )
        request = AddPartitionsToTxnRequest(transactions=[transaction])
        try:
            response = await peer.request(request, timeout_s=self._timeout_s)
        except PeerError:
            return unavailable
        assert isinstance(response, AddPartitionsToTxnResponse)
        return unavailable | _codes(response)

    def _leader(self, transactional_id: str) -> int | None:
        """Return the node id of the coordinator, -1 for none; None before the topic exists."""
        topic = self._image().topic(TRANSACTION_TOPIC)
        if topic is None:
            return None
        partition = topic.partition(self._local.partition_for(transactional_id))
        return partition.leader if partition is not None else None


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
