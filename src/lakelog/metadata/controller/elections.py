"""Elections on request (KIP-183, KIP-460): preferred and unclean.

Error codes follow Kafka's `ReplicationControlManager.electLeaders`. Fenced brokers lead nothing.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.failover import PartitionImage, elected_uncleanly, led_uncleanly
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.plan import Plan
from lakelog.metadata.records import PartitionRecord


class ElectionType(IntEnum):
    """`election_type` on the wire."""

    PREFERRED = 0
    UNCLEAN = 1


class ElectionResult(NamedTuple):
    """The result for one partition."""

    topic: str
    partition: int
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


def plan_elect_leaders(
    image: MetadataImage,
    election_type: ElectionType,
    topics: Sequence[tuple[str, Sequence[int]]] | None,
    leaders: Mapping[tuple[str, int], int] | None = None,
) -> Plan[list[ElectionResult]]:
    """Return one result per partition.

    leaders: the replicas that unclean elections have to choose, by topic and partition.

    `topics` None stands for all partitions; only partitions that need an election have results. A
    partition that is named twice has one result.
    Raises nothing for a rejected partition: its result has the error (KIP-460).
    """
    records = []
    results = []
    for topic, partition in _wanted(image, topics):
        try:
            leader = (leaders or {}).get((topic, partition))
            records.append(_elect(image, topic, partition, election_type, leader))
            results.append(ElectionResult(topic, partition))
        except KafkaError as error:
            if topics is not None or error.code is not ErrorCode.ELECTION_NOT_NEEDED:
                results.append(ElectionResult(topic, partition, error.code, error.message))
    return Plan(tuple(records), results)


def _wanted(
    image: MetadataImage, topics: Sequence[tuple[str, Sequence[int]]] | None
) -> Iterator[tuple[str, int]]:
    if topics is None:
        topics = [(topic.name, sorted(topic.partitions)) for topic in image.topics]
    named = ((name, partition) for name, partitions in topics for partition in partitions)
    return iter(dict.fromkeys(named))


def _elect(
    image: MetadataImage,
    name: str,
    number: int,
    election_type: ElectionType,
    wanted: int | None,
) -> PartitionRecord:
    topic = image.topic(name)
    partition = None if topic is None else topic.partition(number)
    if topic is None or partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such partition")
    preferred = partition.replicas[0]
    if election_type is ElectionType.PREFERRED:
        if partition.leader == preferred:
            raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, "the preferred replica is the leader")
        if preferred not in partition.isr or preferred in image.fenced:
            raise KafkaError(
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, f"broker {preferred} is not in sync"
            )
        return PartitionRecord(topic.topic_id, *partition.led_by(preferred, partition.isr))
    if partition.leader >= 0:
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, "the partition has a leader")
    if wanted is not None:
        return PartitionRecord(topic.topic_id, *_led_by(partition, wanted, image.fenced))
    elected = elected_uncleanly(partition, image.fenced)
    if elected is partition:
        raise KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "all replicas are fenced")
    return PartitionRecord(topic.topic_id, *elected)


def _led_by(partition: PartitionImage, wanted: int, fenced: Container[int]) -> PartitionImage:
    if wanted not in partition.replicas:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"broker {wanted} has no replica")
    if wanted in fenced:
        raise KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"broker {wanted} is fenced")
    return led_uncleanly(partition, wanted)
