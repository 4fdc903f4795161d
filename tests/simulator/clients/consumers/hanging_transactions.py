"""A search for hanging transactions, which no coordinator will end (KIP-664).

A power failure may truncate `__transaction_state`, or a partition with a marker, and leave the
transaction open in other logs. The broker ends such transactions when it starts.
"""

from __future__ import annotations

import asyncio
from typing import Any

from lakelog.protocol.transactions import DescribeProducersRequest, TopicRequest
from simulator.checkers.laws import Law
from simulator.checkers.observations import Place
from simulator.clients.client import Client
from simulator.clients.context import ClientContext
from simulator.clients.producers.transaction_requests import TIMEOUT_MS

_OFFSETS = [("__consumer_offsets", 0), ("__consumer_offsets", 1)]


class HangingTransactionCheck(Client):
    """Starts when the producers have finished; waits for the timeouts of their transactions.

    A marker that compaction removed too early also leaves a hanging transaction.
    """

    def __init__(self, context: ClientContext, name: str, partitions: list[Place]) -> None:
        super().__init__(context, name)
        self._places = [*partitions, *_OFFSETS]

    async def run(self) -> None:
        if any([await self._hanging(partition) for partition in self._places]):
            await asyncio.sleep(2 * TIMEOUT_MS / 1000)
        for partition in self._places:
            for producer in await self._hanging(partition):
                offset = producer.current_txn_start_offset
                self.findings.violation(
                    Law.ENDS,
                    f"{partition}: the transaction of producer {producer.producer_id} at {offset} "
                    "hangs",
                )

    async def _hanging(self, partition: Place) -> list[Any]:
        wanted = TopicRequest(name=partition[0], partition_indexes=[partition[1]])
        answer = await self.ask(DescribeProducersRequest(topics=[wanted]), 0)
        (found,) = answer.topics[0].partitions
        if found.error_code:
            self.unexpected("DescribeProducers", found.error_code)
        return [each for each in found.active_producers if each.current_txn_start_offset >= 0]
