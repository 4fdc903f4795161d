"""The leaders of partitions, the requests of this broker's coordinators to them, and markers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.transaction.endings import Marker, MarkerWriter
from lakelog.metadata.image import MetadataImage
from lakelog.protocol.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from lakelog.runtime.api import Tasks
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


_RETRIED = dict.fromkeys(
    (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID),
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)
"""Retriable codes for the errors of a leader that does not know the partition yet."""


class ClusterMarkers:
    """Markers for partitions on all brokers; a `MarkerWriter`.

    Only this broker's own metadata image states that a topic is deleted and needs no marker. A
    leader may have an older image, and answer UNKNOWN_TOPIC_OR_PARTITION for a topic that exists:
    without the marker its transaction would stay open for ever (KAFKA-5202, KAFKA-5610).

    Args:
        local: writes to the partitions that this broker leads.
    """

    def __init__(self, leaders: PartitionLeaders, local: MarkerWriter, tasks: Tasks) -> None:
        self._leaders = leaders
        self._local = local
        self._tasks = tasks

    async def write(self, markers: Sequence[Marker]) -> list[ErrorCode]:
        """Write each marker to its leader; return one code for each, in their order.

        UNKNOWN_TOPIC_OR_PARTITION means that the topic or partition does not exist.
        """
        codes = dict.fromkeys(markers, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        by_leader: dict[int, list[Marker]] = {}
        for marker in codes:
            if (leader := self._leaders.of(marker.topic, marker.partition)) is not None:
                by_leader.setdefault(leader, []).append(marker)
        # The requests to other brokers are under way while the own markers are written.
        own = by_leader.pop(self._leaders.node_id, [])
        sent: list[tuple[list[Marker], Any]] = []
        for leader, leader_markers in by_leader.items():
            sending = self._tasks.spawn(
                self._send(leader, leader_markers), name=f"markers to {leader}"
            )
            sent.append((leader_markers, sending))
        if own:
            answers = await self._local.write(own)
            codes.update(zip(own, map(_RETRIED.get, answers, answers), strict=True))
        for leader_markers, sending in sent:
            answers = await sending
            codes.update(zip(leader_markers, map(_RETRIED.get, answers, answers), strict=True))
        return list(map(codes.__getitem__, markers))

    async def _send(self, leader: int, markers: list[Marker]) -> list[ErrorCode]:
        """Have another broker write the markers; return one code for each."""
        try:
            response = await self._leaders.request(leader, _request(markers))
        except KafkaError as error:
            return [error.code] * len(markers)
        assert isinstance(response, WriteTxnMarkersResponse)
        written = _codes(response)
        return [
            written.get(
                (marker.producer_id, marker.topic, marker.partition),
                ErrorCode.UNKNOWN_SERVER_ERROR,
            )
            for marker in markers
        ]


def _request(markers: list[Marker]) -> WriteTxnMarkersRequest:
    ends = []
    for end, of_end in groupby(sorted(markers, key=_by_end), key=lambda marker: marker[2:]):
        producer_id, producer_epoch, commit, coordinator_epoch, version, decision = end
        topics = [
            WritableTxnMarkerTopic(
                name=name, partition_indexes=[marker.partition for marker in those]
            )
            for name, those in groupby(of_end, key=lambda marker: marker.topic)
        ]
        ends.append(
            WritableTxnMarker(
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                transaction_result=commit,
                topics=topics,
                coordinator_epoch=coordinator_epoch,
                transaction_version=version,
                decision=decision,
            )
        )
    return WriteTxnMarkersRequest(markers=ends)


def _by_end(marker: Marker) -> tuple[tuple[object, ...], str, int]:
    return marker[2:], marker.topic, marker.partition


def _codes(response: WriteTxnMarkersResponse) -> dict[tuple[int, str, int], ErrorCode]:
    return {
        (result.producer_id, topic.name, partition.partition_index): ErrorCode(partition.error_code)
        for result in response.markers
        for topic in result.topics
        for partition in topic.partitions
    }
