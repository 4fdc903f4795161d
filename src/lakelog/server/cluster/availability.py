"""What responses say of a partition whose leader or replicas are not available."""

from __future__ import annotations

from lakelog.base.errors import ErrorCode
from lakelog.metadata.failover import NO_LEADER, PartitionImage


def leader_error(partition: PartitionImage) -> ErrorCode:
    """Return LEADER_NOT_AVAILABLE if no replica leads: clients then ask again, as in Kafka."""
    return ErrorCode.LEADER_NOT_AVAILABLE if partition.leader == NO_LEADER else ErrorCode.NONE


def offline_replicas(partition: PartitionImage, fenced: frozenset[int]) -> list[int]:
    """Return the node ids of the replicas on fenced brokers (KIP-112)."""
    return [node_id for node_id in partition.replicas if node_id in fenced]
