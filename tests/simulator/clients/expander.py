"""An administrator that puts replicas on new brokers, and unregisters removed ones."""

from __future__ import annotations

from collections.abc import Sequence

from lakelog.base.errors import ErrorCode
from lakelog.protocol.cluster import UnregisterBrokerRequest
from lakelog.protocol.metadata import MetadataRequest, MetadataRequestTopic
from simulator.checkers.observations import Place
from simulator.clients.client import RETRIABLE, Client
from simulator.clients.context import ClientContext
from simulator.clients.topics import add_partitions, create_assigned

_PARTITIONS_MAX = 8
_TOPICS_MAX = 3
_NOT_YET = RETRIABLE | {
    ErrorCode.INVALID_REQUEST,  # its session has not ended, or the controller is new
    ErrorCode.BROKER_ID_NOT_REGISTERED,
}


class Expander(Client):
    """Adds partitions to a topic, and topics, with replicas on brokers of its choice.

    Args:
        topic: the topic that grows. The names of new topics begin with its name.
        lists: where new partitions are noted, for other clients.
    """

    def __init__(
        self, context: ClientContext, name: str, topic: str, lists: Sequence[list[Place]]
    ) -> None:
        super().__init__(context, name)
        self._topic = topic
        self._lists = lists

    def replaced(self) -> Expander:
        return Expander(self.context, self.next_name, self._topic, self._lists)

    async def run(self) -> None:
        while not self.conditions.is_ending:
            await self.pause(0.3, 2.0)
            await self._unregister_removed()
            brokers = await self._brokers()
            if len(brokers) > self.context.plan.replicas and not self.conditions.is_settling:
                await self._expand(brokers)

    async def _brokers(self) -> list[int]:
        """Return the brokers of the cluster as clients see them."""
        request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        return [broker.node_id for broker in (await self.ask(request, 9)).brokers]

    async def _expand(self, brokers: Sequence[int]) -> None:
        replicas = self._some_replicas(brokers)
        topic = f"{self._topic}{self.rng.randrange(_TOPICS_MAX)}"
        if self.rng.random() < 0.5:
            topic, count = self._topic, await self._count(self._topic)
            if count < _PARTITIONS_MAX:
                await add_partitions(self, topic, count + 1, [replicas])
        else:
            await create_assigned(self, topic, [replicas, self._some_replicas(brokers)])
        self._note(topic, await self._count(topic))

    def _some_replicas(self, brokers: Sequence[int]) -> list[int]:
        return self.rng.sample(list(brokers), self.context.plan.replicas)

    async def _count(self, topic: str) -> int:
        """Return the number of partitions of a topic, 0 if it does not exist."""
        names = [MetadataRequestTopic(name=topic)]
        request = MetadataRequest(topics=names, allow_auto_topic_creation=False)
        return len((await self.ask(request, 9)).topics[0].partitions)

    def _note(self, topic: str, count: int) -> None:
        for partitions in self._lists:
            partitions += [
                (topic, index) for index in range(count) if (topic, index) not in partitions
            ]

    async def _unregister_removed(self) -> None:
        for node_id in sorted(self.context.brokers.removed):
            code = (await self.ask(UnregisterBrokerRequest(broker_id=node_id), 0)).error_code
            if code == 0:
                self.findings.counts["removed brokers unregistered"] += 1
            elif code not in _NOT_YET:
                self.unexpected("UnregisterBroker", code)
