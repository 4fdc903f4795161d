"""Requests of this broker's coordinators to the leaders of partitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.image import MetadataImage
from lakelog.server.inter_broker.peer import Peer
from lakelog.wire.schema import Message

_NO_LEADER = -1


class PartitionLeaders:
    """The leaders of partitions in this broker's metadata image.

    Args:
        image: returns the metadata image of this broker.
        peer: returns the connection to a broker, None without an address.
        timeout_s: time for the response of another broker.
    """

    def __init__(
        self,
        node_id: int,
        image: Callable[[], MetadataImage],
        peer: Callable[[int], Peer | None],
        timeout_s: float,
    ) -> None:
        self.node_id = node_id
        """Of this broker."""
        self._image = image
        self._peer = peer
        self._timeout_s = timeout_s

    def of(self, topic: str, index: int) -> int | None:
        """Return the leader's node id, -1 if there is none, None for no such partition."""
        partition = self._image().partition(topic, index)
        return None if partition is None else partition.leader

    def led(self, topic: str) -> dict[int, dict[int, int]]:
        """Return the leader epochs of a topic's partitions, by leader and partition.

        The leader -1 has the partitions without one; a topic that does not exist has no leaders.
        """
        topic_image = self._image().topic(topic)
        partitions = topic_image.partitions.items() if topic_image is not None else ()
        by_leader: dict[int, dict[int, int]] = {}
        for index, partition in sorted(partitions):
            by_leader.setdefault(partition.leader, {})[index] = partition.leader_epoch
        return by_leader

    async def request(self, leader: int, message: Message) -> Any:
        """Return the response of another broker.

        Raises `PeerError`, or `KafkaError` (BROKER_NOT_AVAILABLE) for -1 and without an address.
        """
        peer = self._peer(leader) if leader != _NO_LEADER else None
        if peer is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE)
        return await peer.request(message, timeout_s=self._timeout_s)
