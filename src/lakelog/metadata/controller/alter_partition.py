"""Changes of the in-sync replicas that leaders propose (KIP-497, KIP-903).

Error codes follow Kafka's `ReplicationControlManager.validateAlterPartitionData`.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import NamedTuple

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.controller.brokers import check_broker_epoch
from lakelog.metadata.failover import NO_LEADER, PartitionImage, without_read_only
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.plan import Plan
from lakelog.metadata.records import PartitionRecord

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
        new = new._replace(partition_epoch=old.partition_epoch + 1)
    altered = without_read_only(new, image.read_only, image.fenced, min_isr)
    assert altered.leader != NO_LEADER, "a proposal takes no leader away"
    return altered
