"""Elections: on request, after a change of their settings, and away from failed replicas.

Elections on request (KIP-183, KIP-460) are preferred or unclean. Error codes follow Kafka's
`ReplicationControlManager.electLeaders`. Fenced brokers lead nothing.

The settings are `min.insync.replicas` and `unclean.leader.election.enable`. The metadata has their
cluster-wide values (KIP-966). A value in the file of one broker would let brokers disagree on the
replicas that have every committed record, and elections would depend on the controller of the
moment.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from lakelog.base.config.broker_config import BrokerConfig
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.controller.brokers import check_broker_epoch, reviewed
from lakelog.metadata.failover import (
    NO_LEADER,
    Failure,
    PartitionImage,
    after_failure,
    elected_uncleanly,
    led_uncleanly,
    with_offline,
)
from lakelog.metadata.features import METADATA_VERSION, OFFLINE_SINCE
from lakelog.metadata.image import ELECTION_KEYS, MetadataImage
from lakelog.metadata.plan import Plan
from lakelog.metadata.records import ConfigRecord, PartitionRecord, Record, ResourceType


def plan_election_settings(image: MetadataImage, static: BrokerConfig) -> list[Record]:
    """Record this broker's settings for the whole cluster, as far as it has none."""
    recorded = image.configs(ResourceType.BROKER, "")
    return with_review(
        image,
        [
            ConfigRecord(ResourceType.BROKER, "", key, static.static[key])
            for key in sorted(ELECTION_KEYS)
            if key in static.static and key not in recorded
        ],
    )


def with_review(image: MetadataImage, records: Sequence[Record]) -> list[Record]:
    """Return the records, followed by `LeadersReviewed` if they change an ELR or a leader.

    A partition without a leader gets one as soon as the settings allow it.
    """
    is_about_elections = any(
        isinstance(record, ConfigRecord)
        and record.key in ELECTION_KEYS
        and record.resource_type in (ResourceType.TOPIC, ResourceType.BROKER)
        for record in records
    )
    return reviewed(image, records) if is_about_elections else list(records)


def plan_failed_replicas(
    image: MetadataImage, broker_id: int, epoch: int, failed: Mapping[tuple[bytes, int], Failure]
) -> Plan[None]:
    """Move leaderships from failed replicas of a broker; they leave the ISRs and the ELRs.

    Without a successor, a partition whose log is offline has no leader, unless its topic has
    `unclean.leader.election.enable` and another replica can lead. No later election chooses an
    offline replica before the next start of its broker.

    failed: the failures by topic id and partition, see `after_failure`.

    Raises STALE_BROKER_EPOCH for another epoch than the present one.
    """
    check_broker_epoch(image, broker_id, epoch)
    records = []
    for (topic_id, index), failure in sorted(failed.items()):
        topic, old = image.topic_by_id(topic_id), image.partition(topic_id, index)
        if topic is None or old is None or broker_id not in old.replicas:
            continue
        new = _failed_over(image, topic.name, old, broker_id, failure)
        if new is not old:
            records.append(PartitionRecord(topic_id, *new))
    return Plan(tuple(records), None)


def _failed_over(
    image: MetadataImage, topic: str, old: PartitionImage, broker_id: int, failure: Failure
) -> PartitionImage:
    """Return the partition after the failure of one replica; the same object if it is noted."""
    min_isr, noted = image.min_isr(topic), old
    # Older brokers cannot read that a replica is offline: elections may choose it, and its broker
    # reports it again.
    if failure.is_offline and image.feature_level(METADATA_VERSION) >= OFFLINE_SINCE:
        noted = with_offline(old, broker_id, min_isr)
    new = noted
    # A broker that cannot write serves reads, unlike an offline log.
    for unable in (image.fenced | image.read_only, image.fenced):
        new = after_failure(noted, broker_id, failure, unable, min_isr)
        if new is noted or new.leader != NO_LEADER:
            break
    if not failure.is_offline or new.leader != NO_LEADER or not image.may_lose_records(topic):
        return new
    lost = image.fenced | {broker_id}
    elected = elected_uncleanly(new, lost | image.read_only)
    return elected_uncleanly(new, lost) if elected.leader == NO_LEADER else elected


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
    for topic, partition in _partitions(image, topics):
        try:
            leader = (leaders or {}).get((topic, partition))
            records.append(_elect(image, topic, partition, election_type, leader))
            results.append(ElectionResult(topic, partition))
        except KafkaError as error:
            if topics is not None or error.code is not ErrorCode.ELECTION_NOT_NEEDED:
                results.append(ElectionResult(topic, partition, error.code, error.message))
    return Plan(tuple(records), results)


def _partitions(
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
    leader: int | None,
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
    if leader is not None:
        return PartitionRecord(topic.topic_id, *_led_by(partition, leader, image.fenced))
    # A live eligible replica would lead if its log were not offline, which metadata of older
    # brokers does not show.
    offline = {*partition.isr, *partition.elr}
    elected = elected_uncleanly(partition, image.fenced | offline)
    if elected is partition:
        elected = elected_uncleanly(partition, image.fenced)
    if elected is partition:
        raise KafkaError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "all replicas are fenced or offline"
        )
    return PartitionRecord(topic.topic_id, *elected)


def _led_by(partition: PartitionImage, leader: int, fenced: Container[int]) -> PartitionImage:
    if leader not in partition.replicas:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"broker {leader} has no replica")
    if leader in fenced:
        raise KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"broker {leader} is fenced")
    if leader in partition.offline:
        raise KafkaError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"the log of broker {leader} is offline"
        )
    return led_uncleanly(partition, leader)
