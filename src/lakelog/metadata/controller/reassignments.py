"""Reassignment of partitions to other brokers (KIP-455), as far as possible without replication.

Only the order of the replicas can change, which needs no copy; so no reassignment is ever in
progress. Error codes follow Kafka's `ReplicationControlManager`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.controller.assignment import check_manual
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.plan import Plan
from lakelog.metadata.records import PartitionRecord


class Reassignment(NamedTuple):
    """The wanted replicas of a partition; None cancels a reassignment in progress."""

    topic: str
    partition: int
    replicas: Sequence[int] | None


class ReassignmentResult(NamedTuple):
    """The result for one partition."""

    topic: str
    partition: int
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


def plan_reassignments(
    image: MetadataImage,
    moves: Sequence[Reassignment],
    *,
    allow_replication_factor_change: bool = True,
) -> Plan[list[ReassignmentResult]]:
    """Return one result per partition, in the order of the request (KIP-455).

    Raises nothing for a rejected partition: its result has the error, and the others take effect. A
    partition that is named twice is rejected both times.
    """
    records = []
    results = []
    times = Counter((move.topic, move.partition) for move in moves)
    for move in moves:
        try:
            if times[move.topic, move.partition] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the partition is named twice")
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
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no reassignment is in progress")
    (replicas,) = check_manual(image, {move.partition: move.replicas}, move.partition)
    if len(replicas) != len(partition.replicas) and not allow_factor_change:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"the partition has {len(partition.replicas)} replicas, the request {len(replicas)}",
        )
    if set(replicas) != set(partition.replicas):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions cannot be moved to other brokers yet; the replicas are "
            f"{list(partition.replicas)}",
        )
    if replicas == partition.replicas:
        return []
    return [
        PartitionRecord(
            topic.topic_id,
            *partition._replace(replicas=replicas, partition_epoch=partition.partition_epoch + 1),
        )
    ]
