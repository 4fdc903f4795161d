"""Descriptions of groups, common to both group protocols."""

from __future__ import annotations

from dataclasses import dataclass

from lakelog.client.offsets import TopicPartition
from lakelog.protocol.consumer_group_describe import Assignment
from lakelog.protocol.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from lakelog.protocol.consumer_group_describe import Member as DescribedConsumerMember
from lakelog.protocol.consumer_protocol import ConsumerProtocolAssignment, decode_versioned
from lakelog.protocol.describe_groups import DescribedGroup, DescribedGroupMember
from lakelog.wire.errors import WireError

CONSUMER_PROTOCOL = "consumer"
CLASSIC, CONSUMER = "classic", "consumer"


@dataclass(slots=True, frozen=True)
class GroupMember:
    """A member. protocol: classic or consumer. epoch: -1 in a classic group."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    partitions: tuple[TopicPartition, ...]
    protocol: str = CLASSIC
    epoch: int = -1


@dataclass(slots=True, frozen=True)
class Group:
    """A group and its members.

    state: Kafka's name: Empty, Stable or Dead; in a classic group also PreparingRebalance and
    CompletingRebalance, in a consumer group also Assigning and Reconciling. protocol: the assignor.
    """

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[GroupMember, ...]
    group_type: str = CLASSIC
    epoch: int = -1


def classic_group(row: DescribedGroup) -> Group:
    """Return the group in a row of a DescribeGroups response."""
    is_consumer = row.protocol_type == CONSUMER_PROTOCOL
    members = [_classic_member(member, is_consumer=is_consumer) for member in row.members]
    return Group(
        row.group_id, row.group_state, row.protocol_type, row.protocol_data, tuple(members)
    )


def _classic_member(row: DescribedGroupMember, *, is_consumer: bool) -> GroupMember:
    partitions: list[TopicPartition] = []
    if is_consumer and row.member_assignment:
        try:
            assignment = decode_versioned(ConsumerProtocolAssignment, row.member_assignment)
        except WireError:
            assignment = ConsumerProtocolAssignment()
        partitions = [(t.topic, p) for t in assignment.assigned_partitions for p in t.partitions]
    return GroupMember(
        row.member_id,
        row.group_instance_id,
        row.client_id,
        row.client_host,
        tuple(sorted(partitions)),
    )


def consumer_group(row: DescribedConsumerGroup) -> Group:
    """Return the group in a row of a ConsumerGroupDescribe response (KIP-848)."""
    return Group(
        group_id=row.group_id,
        state=row.group_state,
        protocol_type=CONSUMER_PROTOCOL,
        protocol=row.assignor_name,
        members=tuple(_consumer_member(member) for member in row.members),
        group_type=CONSUMER,
        epoch=row.group_epoch,
    )


def _consumer_member(row: DescribedConsumerMember) -> GroupMember:
    return GroupMember(
        member_id=row.member_id,
        instance_id=row.instance_id,
        client_id=row.client_id,
        client_host=row.client_host,
        partitions=tuple(sorted(_partitions(row.assignment))),
        protocol=CLASSIC if row.member_type == 0 else CONSUMER,
        epoch=row.member_epoch,
    )


def _partitions(assignment: Assignment) -> list[TopicPartition]:
    return [(t.topic_name, each) for t in assignment.topic_partitions for each in t.partitions]
