"""Asks the other brokers whether one of them knows a later leader of a coordinator's partition.

They must also know the same controller. A new one, whose election this broker has missed, does not
get its heartbeats, and may soon elect another coordinator although all of them still agree. And
they grant a lease: they do not fence this broker while their answers count
(`controller.lease_grants`). A broker of an older version grants none, so this one gets no full
agreement.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum, auto

from lakelog.base.errors import KafkaError
from lakelog.coordinator.group.coordinator import GROUP_TOPIC
from lakelog.coordinator.transaction.coordinator import TRANSACTION_TOPIC
from lakelog.metadata.image import MetadataImage
from lakelog.protocol.brokers import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from lakelog.protocol.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from lakelog.server.inter_broker.peer import Peer

_TOPICS = (GROUP_TOPIC, TRANSACTION_TOPIC)
_PATIENCE_S = 1.0


class Agreement(Enum):
    """The answers of the other brokers together."""

    FULL = auto()
    """All that may lead have granted a lease, and know the same controller and no later leader."""
    OPEN = auto()
    DENIED = auto()
    """One of them knows a later leader of a partition that this broker leads."""


class LaterLeaders:
    """The leaders that other brokers know.

    Args:
        image: returns the metadata image of this broker.
        controller_id: returns the controller that this broker knows.
        peer: returns the connection to a broker, None without an address.
    """

    def __init__(
        self,
        node_id: int,
        image: Callable[[], MetadataImage],
        controller_id: Callable[[], int],
        peer: Callable[[int], Peer | None],
    ) -> None:
        self._node_id = node_id
        self._image = image
        self._controller_id = controller_id
        self._peer = peer

    async def ask(self) -> Agreement:
        """Ask all other brokers that may lead, at the same time."""
        image = self._image()
        others = set(image.brokers).difference(image.fenced) | self._eligible(image)
        peers = [self._peer(node_id) for node_id in sorted(others - {self._node_id})]
        answers = {
            *await asyncio.gather(*(self._answer(peer) for peer in peers if peer is not None))
        }
        if None in peers:
            answers.add(Agreement.OPEN)
        for answer in (Agreement.DENIED, Agreement.OPEN):
            if answer in answers:
                return answer
        return Agreement.FULL

    def _eligible(self, image: MetadataImage) -> set[int]:
        """Return the brokers that may be elected in place of this one.

        A fenced broker is among them if it is an eligible replica. It may have returned since.
        """
        topics = [topic for name in _TOPICS if (topic := image.topic(name)) is not None]
        return {
            node_id
            for topic in topics
            for partition in topic.partitions.values()
            if partition.leader == self._node_id
            for node_id in (*partition.isr, *partition.elr)
        }

    async def _answer(self, peer: Peer) -> Agreement:
        request = BrokerHeartbeatRequest(broker_id=self._node_id, want_lease=True)
        topics = [MetadataRequestTopic(name=name) for name in _TOPICS]
        question = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        try:
            grant = await peer.request(request, timeout_s=_PATIENCE_S)
            # Only after the grant the peer elects no leader that this answer could miss.
            response = await peer.request(question, timeout_s=_PATIENCE_S)
        except KafkaError:
            return Agreement.OPEN
        assert isinstance(grant, BrokerHeartbeatResponse)
        assert isinstance(response, MetadataResponse)
        image = self._image()
        is_same = grant.is_lease_granted and response.controller_id == self._controller_id()
        for topic in response.topics:
            for partition in topic.partitions:
                own = image.partition(topic.name or "", partition.partition_index)
                if own is None:
                    is_same = False
                elif partition.leader_epoch > own.leader_epoch:
                    if own.leader == self._node_id:
                        return Agreement.DENIED
                    is_same = False
        return Agreement.FULL if is_same else Agreement.OPEN
