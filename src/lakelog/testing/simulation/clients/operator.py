"""Who ends the transactions that nobody knows of any more, as `lakelog txn abort` does (KIP-664).

A power failure may take the end of `__transaction_state`, or of a partition with a marker in it,
and leave what belongs to it in other logs: the transaction then hangs there.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from lakelog.protocol.describe_producers import DescribeProducersRequest, TopicRequest
from lakelog.protocol.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from lakelog.testing.simulation.clients.client import Client
from lakelog.testing.simulation.clients.transactions import TIMEOUT_MS
from lakelog.testing.simulation.ledger import Place

if TYPE_CHECKING:
    from lakelog.testing.simulation.world import World

_OFFSETS = [("__consumer_offsets", 0), ("__consumer_offsets", 1)]


class Operator(Client):
    """Comes when producers have gone, and waits until their coordinators must have ended theirs."""

    def __init__(self, world: World, name: str, places: list[Place]) -> None:
        super().__init__(world, name)
        self._places = [*places, *_OFFSETS]

    async def run(self) -> None:
        await asyncio.sleep(2 * TIMEOUT_MS / 1000)
        for place in self._places:
            for producer in await self._producers(place):
                if producer.current_txn_start_offset >= 0:
                    await self._abort(place, producer)

    async def _producers(self, place: Place) -> list[Any]:
        wanted = TopicRequest(name=place[0], partition_indexes=[place[1]])
        answer = await self.ask(DescribeProducersRequest(topics=[wanted]), 0)
        (found,) = answer.topics[0].partitions
        if found.error_code:
            self.unexpected("DescribeProducers", found.error_code)
        return list(found.active_producers)

    async def _abort(self, place: Place, producer: Any) -> None:
        self.ledger.counts["hanging transactions"] += 1
        marker = WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=place[0], partition_indexes=[place[1]])],
            coordinator_epoch=max(producer.coordinator_epoch, 0),
        )
        answer = await self.ask(WriteTxnMarkersRequest(markers=[marker]), 1)
        (result,) = answer.markers[0].topics[0].partitions
        if result.error_code:
            self.unexpected("WriteTxnMarkers", result.error_code)
