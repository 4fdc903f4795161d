"""Moving partitions to other brokers (KIP-455), as far as that goes without replication.

A move to the brokers that hold the partition already is done at once; there is nothing to copy, and
so no move is ever under way. Codes are those of Kafka's `ReplicationControlManager`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.controller.assignment import check_manual
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.plan import Plan
from lakelog.metadata.records import PartitionRecord


class Reassignment(NamedTuple):
    """`replicas` None cancels a move that is under way."""

    topic: str
    partition: int
    replicas: Sequence[int] | None


class ReassignmentResult(NamedTuple):
    topic: str
    partition: int
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


def plan_reassignments(
    image: MetadataImage,
    wanted: Sequence[Reassignment],
    *,
    allow_replication_factor_change: bool = True,
) -> Plan[list[ReassignmentResult]]:
    """Results in the order asked; one bad partition fails alone."""
    records = []
    results = []
    for move in wanted:
        try:
            records += _reassign(image, move, allow_replication_factor_change)
        except KafkaError as error:
            results.append(
                ReassignmentResult(move.topic, move.partition, error.code, error.message)
            )
        else:
            results.append(ReassignmentResult(move.topic, move.partition))
    return Plan(tuple(records), results)


def _reassign(
    image: MetadataImage, move: Reassignment, allow_factor_change: bool
) -> list[PartitionRecord]:
    topic = image.topic(move.topic)
    partition = None if topic is None else topic.partition(move.partition)
    if topic is None or partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such partition")
    if move.replicas is None:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no move is under way")
    (replicas,) = check_manual(image, {move.partition: move.replicas}, move.partition)
    if len(replicas) != len(partition.replicas) and not allow_factor_change:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"the partition has {len(partition.replicas)} replicas, {len(replicas)} are asked for",
        )
    if set(replicas) != set(partition.replicas):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"records cannot be copied to other brokers yet; {list(partition.replicas)} hold them",
        )
    if replicas == partition.replicas:
        return []
    return [
        PartitionRecord(
            topic.topic_id,
            partition.partition,
            replicas,
            partition.isr,
            partition.leader,
            partition.leader_epoch,
            partition.partition_epoch + 1,
        )
    ]
