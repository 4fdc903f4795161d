"""Leaders and offline replicas in responses that describe partitions."""

from __future__ import annotations

from typing import NamedTuple

from lakelog.base.errors import ErrorCode
from lakelog.metadata.failover import NO_LEADER, PartitionImage
from lakelog.metadata.image import MetadataImage
from lakelog.replica.partition_registry import PartitionRegistry


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
