"""A transactional producer that writes to new topics, which some broker may not know yet."""

from __future__ import annotations

from typing import Any

from lakelog.protocol.produce import ProduceRequest
from simulator.checkers.observations import Place
from simulator.clients.context import ClientContext
from simulator.clients.producers.transactional import TransactionalProducer, TransactionOver
from simulator.clients.topics import create_topic
from simulator.network.connection import NoResponse

_TOPICS_MAX = 12
_PATIENCE_S = 0.7


class NewTopicProducer(TransactionalProducer):
    """Creates a topic for each of its first transactions, and gives up a batch after a short time.

    Args:
        known: gets the partitions of the created topics, for readers of all partitions.
    """

    def __init__(self, context: ClientContext, name: str, known: list[Place], version: int) -> None:
        super().__init__(context, name, [], version)
        self._known = known
        self._topics = 0

    def replaced(self) -> NewTopicProducer:
        super().replaced()
        return NewTopicProducer(self.context, self.next_name, self._known, self._version)

    async def _prepare(self) -> None:
        if self._topics == _TOPICS_MAX:
            return
        self._topics += 1
        name, _, number = self.name.partition("'")
        topic = f"{name}-{number or 0}-{self._topics}"
        await create_topic(self, topic, 2, {})  # False means that a lost response was a success
        self._places = [(topic, index) for index in range(2)]
        self._known += self._places

    async def _produce(self, request: ProduceRequest, version: int) -> Any:
        """Return the response. Raises `TransactionOver` if a batch has to wait."""
        if self.now - self._began > _PATIENCE_S:
            raise TransactionOver
        try:
            return await self.connection.call(request, version, _PATIENCE_S)
        except NoResponse:
            raise TransactionOver from None
