"""Changes of leaders and of in-sync replicas: proposals of leaders, and elections.

Leaders propose in-sync replicas (KIP-497, KIP-903). Elections happen on request (preferred or
unclean: KIP-183, KIP-460), after a change of their settings, and away from failed replicas. Fenced
brokers lead nothing. Error codes follow Kafka's `ReplicationControlManager`.

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
    without_read_only,
)
from lakelog.metadata.features import METADATA_VERSION, OFFLINE_SINCE
from lakelog.metadata.image import ELECTION_KEYS, MetadataImage
from lakelog.metadata.plan import Plan
from lakelog.metadata.records import ConfigRecord, PartitionRecord, Record, ResourceType

_UNKNOWN_EPOCH = -1


class ProposedIsr(NamedTuple):
    """The ISR that a leader wants, as pairs of node id and broker epoch.

    Leader epoch and partition epoch belong to the replaced state.
    """

    topic_id: bytes
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]
    new_leader: int = NO_LEADER
    """A member that has all records of the leader and takes over; -1 for none."""


class AlteredIsr(NamedTuple):
    """The state of a partition after a proposal, or the reason of its refusal."""

    topic_id: bytes
    partition: int
    error: ErrorCode
    state: PartitionImage | None = None


def plan_alter_partitions(
    image: MetadataImage,
    leader_id: int,
    broker_epoch: int,
    proposals: Sequence[ProposedIsr],
    *,
    prefers_first: bool = True,
) -> Plan[list[AlteredIsr]]:
    """Return one result per proposal, in their order; a bad one fails alone.

    Of several proposals for a partition only the first can be valid.

    prefers_first: whether leaders may hand over to the preferred replica
        (`auto.leader.rebalance.enable`).

    Raises STALE_BROKER_EPOCH for another process of the leader.
    """
    check_broker_epoch(image, leader_id, broker_epoch)
    records, results = [], []
    changed = set()
    for proposal in proposals:
        key = proposal.topic_id, proposal.partition
        try:
            if key in changed:
                raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION)
            old = _checked(image, leader_id, proposal)
        except KafkaError as error:
            results.append(AlteredIsr(*key, error.code))
            continue
        new = _altered(image, old, proposal, prefers_first)
        records.append(PartitionRecord(proposal.topic_id, *new))
        changed.add(key)
        is_moved = new.leader != old.leader
        code = ErrorCode.NEW_LEADER_ELECTED if is_moved else ErrorCode.NONE
        results.append(AlteredIsr(*key, code, new))
    assert len(results) == len(proposals), "each proposal has an answer"
    return Plan(tuple(records), results)


def _checked(image: MetadataImage, leader_id: int, proposal: ProposedIsr) -> PartitionImage:
    """Return the present state. Raises `KafkaError` for a proposal that does not fit it."""
    topic = image.topic_by_id(proposal.topic_id)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    old = topic.partition(proposal.partition)
    if old is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    is_newer = (
        proposal.leader_epoch > old.leader_epoch or proposal.partition_epoch > old.partition_epoch
    )
    if is_newer:  # this broker is no longer the controller (KAFKA-14154)
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    if proposal.leader_epoch < old.leader_epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
    if proposal.partition_epoch < old.partition_epoch:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION)
    members = [node_id for node_id, _ in proposal.isr]
    is_valid = len(set(members)) == len(members) and set(members) <= set(old.replicas)
    if old.leader != leader_id or leader_id not in members or not is_valid:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if not set(old.offline).isdisjoint(members) or not all(
        _may_join(image, node_id, epoch, old.isr) for node_id, epoch in proposal.isr
    ):
        raise KafkaError(ErrorCode.INELIGIBLE_REPLICA)
    return old


def _may_join(image: MetadataImage, node_id: int, epoch: int, members: Container[int]) -> bool:
    """Return whether the broker is the process that the leader means, and not fenced.

    A read-only broker may only stay, as the leader without a successor.
    """
    broker = image.brokers.get(node_id)
    if broker is None or broker.is_fenced or (broker.is_read_only and node_id not in members):
        return False
    return epoch in (_UNKNOWN_EPOCH, broker.epoch)


def _altered(
    image: MetadataImage, old: PartitionImage, proposal: ProposedIsr, prefers_first: bool
) -> PartitionImage:
    """Return the new state, led by the preferred replica if its leader hands over to it.

    Only the leader knows whether it has the records that the leader alone has acknowledged. A
    read-only leader hands over to a new member, and leaves.
    """
    members = {node_id for node_id, _ in proposal.isr}
    isr = tuple(node_id for node_id in old.replicas if node_id in members)
    assert len(isr) == len(members), "only replicas are in sync"
    min_isr = image.min_isr(image.topics_by_id[proposal.topic_id].name)
    new = old.with_isr(isr, min_isr)
    preferred = old.replicas[0]
    if prefers_first and preferred in isr and preferred == proposal.new_leader != old.leader:
        new = new.led_by(preferred, isr)
    else:
        new = new.altered()
    altered = without_read_only(new, image.read_only, image.fenced, min_isr)
    assert altered.leader != NO_LEADER, "a proposal takes no leader away"
    return altered


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
