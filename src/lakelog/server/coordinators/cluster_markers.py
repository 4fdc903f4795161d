"""Writes the markers of this broker's transaction coordinator to the leaders of their partitions.

Only this broker's own metadata image states that a topic is deleted and needs no marker. A leader
may have an older image, and answer UNKNOWN_TOPIC_OR_PARTITION for a topic that exists: without the
marker its transaction would stay open for ever (KAFKA-5202, KAFKA-5610).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.transaction.markers import Marker, MarkerWriter
from lakelog.metadata.image import MetadataImage
from lakelog.protocol.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from lakelog.runtime.api import Tasks
from lakelog.server.peers.errors import PeerError
from lakelog.server.peers.peer import Peer

_UNKNOWN = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
_NO_LEADER = -1


class ClusterMarkers:
    """Markers for partitions on all brokers; a `MarkerWriter`.

    Args:
        image: returns the metadata image of this broker.
        local: writes to the partitions that this broker leads.
        peer: returns the connection to a broker, None without an address.
        timeout_s: time for the response of another broker.
    """

    def __init__(
        self,
        node_id: int,
        image: Callable[[], MetadataImage],
        local: MarkerWriter,
        peer: Callable[[int], Peer | None],
        tasks: Tasks,
        timeout_s: float,
    ) -> None:
        self._node_id = node_id
        self._image = image
        self._local = local
        self._peer = peer
        self._tasks = tasks
        self._timeout_s = timeout_s

    async def write(self, markers: Sequence[Marker]) -> list[ErrorCode]:
        """Write each marker to its leader; return one code for each, in their order.

        UNKNOWN_TOPIC_OR_PARTITION means that the topic or partition does not exist.
        """
        codes = dict.fromkeys(markers, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        by_leader: dict[int, list[Marker]] = {}
        for marker in codes:
            if (leader := self._leader(marker)) is not None:
                by_leader.setdefault(leader, []).append(marker)
        own = by_leader.pop(self._node_id, [])
        sent = [
            (wanted, self._tasks.spawn(self._send(leader, wanted), name=f"markers to {leader}"))
            for leader, wanted in by_leader.items()
        ]
        if own:
            codes.update(zip(own, map(_unsettled, await self._local.write(own)), strict=True))
        for wanted, sending in sent:
            codes.update(zip(wanted, map(_unsettled, await sending), strict=True))
        return [codes[marker] for marker in markers]

    def _leader(self, marker: Marker) -> int | None:
        """Return the leader's node id, -1 if there is none, None for no such partition."""
        topic = self._image().topic(marker.topic)
        partition = topic.partition(marker.partition) if topic is not None else None
        return partition.leader if partition is not None else None

    async def _send(self, leader: int, markers: list[Marker]) -> list[ErrorCode]:
        """Have another broker write the markers; return one code for each."""
        peer = self._peer(leader) if leader != _NO_LEADER else None
        if peer is None:
            return [ErrorCode.BROKER_NOT_AVAILABLE] * len(markers)
        try:
            response = await peer.request(_request(markers), timeout_s=self._timeout_s)
        except PeerError as error:
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


def _unsettled(code: ErrorCode) -> ErrorCode:
    """Return a retriable code for a leader that does not know the partition yet."""
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if code in _UNKNOWN else code


def _request(markers: list[Marker]) -> WriteTxnMarkersRequest:
    ends = []
    for end, of_end in groupby(sorted(markers, key=_by_end), key=lambda marker: marker[2:]):
        producer_id, producer_epoch, commit, coordinator_epoch, version = end
        topics = [
            WritableTxnMarkerTopic(name=name, partition_indexes=[each.partition for each in those])
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
            )
        )
    return WriteTxnMarkersRequest(markers=ends)


def _by_end(marker: Marker) -> tuple[tuple[object, ...], str, int]:
    return marker[2:], marker.topic, marker.partition


def _codes(response: WriteTxnMarkersResponse) -> dict[tuple[int, str, int], ErrorCode]:
    return {
        (result.producer_id, topic.name, each.partition_index): ErrorCode(each.error_code)
        for result in response.markers
        for topic in result.topics
        for each in topic.partitions
    }
