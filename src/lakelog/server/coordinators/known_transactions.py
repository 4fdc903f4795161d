"""Asks all transaction coordinators of the cluster which transactions they know.

An answer is complete only if it is of each partition's present coordinator, with all its records.
So each coordinator confirms before and after it that it leads its partitions in the leader epochs
of this broker's image, and refuses a list while it has not loaded one of them. The image is read
from the store first: a transaction may have begun after the image that this broker has, with a
coordinator that is not in it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.transaction.coordinator import TRANSACTION_TOPIC, TransactionCoordinator
from lakelog.protocol.fetch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from lakelog.protocol.producers import InitProducerIdRequest
from lakelog.protocol.transactions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from lakelog.server.coordinators.leaders import PartitionLeaders

Epochs = Mapping[int, int]
"""Leader epochs by partition of `__transaction_state`."""


class KnownTransactions:
    """The transactions of all coordinators, by producer id.

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
