"""Parts of responses about topics: leaders, offline replicas, and encoded Metadata."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from lakelog.base.errors import ErrorCode
from lakelog.metadata.failover import NO_LEADER, PartitionImage
from lakelog.metadata.image import MetadataImage
from lakelog.replica.partition_registry import PartitionRegistry

_KEPT_MAX = 8


class KnownMetadata:
    """The responses of one image. A key has everything else that a response depends on."""

    def __init__(self) -> None:
        self._image: MetadataImage | None = None
        self._frames: dict[Hashable, bytes] = {}

    def find(self, image: MetadataImage, key: Hashable) -> bytes | None:
        return self._frames.get(key) if image is self._image else None

    def keep(self, image: MetadataImage, key: Hashable, frame: bytes) -> None:
        if image is not self._image or len(self._frames) >= _KEPT_MAX:
            self._image, self._frames = image, {}
        self._frames[key] = frame


class Availability(NamedTuple):
    """The unavailable replicas, as far as this broker knows them.

    node_id: of this broker.
    fenced: the fenced brokers.
    offline: topic id and index of each partition whose log here cannot be used.
    """

    node_id: int
    fenced: frozenset[int]
    offline: frozenset[tuple[bytes, int]]

    @classmethod
    def of(cls, node_id: int, image: MetadataImage, partitions: PartitionRegistry) -> Availability:
        """Return the present state. partitions: of this broker."""
        return cls(node_id, image.fenced, partitions.offline_keys)

    def leader(self, topic_id: bytes, partition: PartitionImage) -> tuple[int, ErrorCode]:
        """Return the leader, and the error of the partition in a response.

        (-1, LEADER_NOT_AVAILABLE) if no replica can lead: clients then ask again, as in Kafka. A
        single broker stays the leader in the metadata although its log is offline.
        """
        leader = partition.leader
        if leader == self.node_id and (topic_id, partition.partition) in self.offline:
            leader = NO_LEADER
        if leader == NO_LEADER:
            return NO_LEADER, ErrorCode.LEADER_NOT_AVAILABLE
        return leader, ErrorCode.NONE

    def offline_replicas(self, topic_id: bytes, partition: PartitionImage) -> list[int]:
        """Return the node ids of the replicas that are offline (KIP-112).

        These are replicas on fenced brokers, and replicas whose logs cannot be used: by the
        metadata, and on this broker, which may have found it just now.
        """
        unable = self.fenced.union(partition.offline)
        if (topic_id, partition.partition) in self.offline:
            unable |= {self.node_id}
        return [node_id for node_id in partition.replicas if node_id in unable]
