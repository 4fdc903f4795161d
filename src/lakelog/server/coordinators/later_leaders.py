"""Asks the other brokers whether one of them knows a later leader of a coordinator's partition.

They must also know the same controller. A new one, whose election this broker has missed, does not
get its heartbeats, and may soon elect another coordinator although all of them still agree.
"""

from __future__ import annotations

from collections.abc import Callable

from lakelog.base.errors import KafkaError
from lakelog.coordinator.group.coordinator import GROUP_TOPIC
from lakelog.coordinator.transaction.coordinator import TRANSACTION_TOPIC
from lakelog.metadata.image import MetadataImage
from lakelog.protocol.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from lakelog.server.peers.peer import Peer

_TOPICS = (GROUP_TOPIC, TRANSACTION_TOPIC)
_PATIENCE_S = 1.0


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

    async def none_known(self) -> bool:
        """Return whether all other brokers that may lead have answered, and know none."""
        image = self._image()
        others = set(image.brokers).difference(image.fenced) | self._eligible(image)
        for node_id in sorted(others - {self._node_id}):
            peer = self._peer(node_id)
            if peer is None or not await self._agrees(peer):
                return False
        return True

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

    async def _agrees(self, peer: Peer) -> bool:
        topics = [MetadataRequestTopic(name=name) for name in _TOPICS]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        try:
            response = await peer.request(request, timeout_s=_PATIENCE_S)
        except KafkaError:
            return False
        assert isinstance(response, MetadataResponse)
        if response.controller_id != self._controller_id():
            return False
        image = self._image()
        for topic in response.topics:
            for partition in topic.partitions:
                own = image.partition(topic.name or "", partition.partition_index)
                if own is None or partition.leader_epoch > own.leader_epoch:
                    return False
        return True
