"""Online migration between the protocols (KIP-848, `group.consumer.migration.policy`).

A classic group is upgraded to a consumer group when the first member of the consumer protocol
joins. Its members stay with their assignment and continue to use the classic protocol. A consumer
group is downgraded to a classic group when its last member of the consumer protocol has left. Each
migration is one batch of records, so no crash leaves half a group.

This module converts groups; `groups` decides when.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.classic.group import ClassicGroup, GroupState
from lakelog.coordinator.group.classic.member import Member
from lakelog.coordinator.group.config import Topics
from lakelog.coordinator.group.consumer.group import ConsumerGroup, Draft
from lakelog.coordinator.group.consumer.member import ClassicSide, ConsumerMember
from lakelog.coordinator.group.consumer.rebalance import metadata_hash
from lakelog.coordinator.group.records import GroupMetadataKey, GroupRecord
from lakelog.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_versioned,
    encode_versioned,
    version_of,
)
from lakelog.wire.primitives import WireError

CONSUMER = "consumer"


def classic_tombstone(group_id: str) -> GroupRecord:
    """Return the record that deletes a classic group."""
    return GroupRecord(GroupMetadataKey(group=group_id), None)


def consumer_tombstones(group: ConsumerGroup) -> Draft:
    """Return a draft that deletes the group with all members."""
    draft = Draft(group)
    draft.delete_group()
    return draft


def upgraded(classic: ClassicGroup, topics: Topics) -> Draft:
    """Return a consumer group with the members and the assignment of a classic one.

    Its epoch is the classic group's generation. Raises `KafkaError(GROUP_ID_NOT_FOUND)` if a
    subscription or an assignment is malformed, or has user data that would be lost.
    """
    draft = Draft(
        ConsumerGroup(classic.group_id),
        retires=classic,
        records=[classic_tombstone(classic.group_id)],
    )
    members = [_upgraded_member(classic, member, topics) for member in classic.members.values()]
    for member in members:
        draft.put_member(member)
    draft.put_epoch(classic.generation, metadata_hash(draft.group.subscribed_topics(), topics))
    for member in members:
        target = {topic: frozenset(epochs) for topic, epochs in member.assigned.items()}
        draft.put_target(member.member_id, target)
    draft.put_target_epoch(classic.generation, 0)
    for member in members:
        draft.put_assignment(member)
    return draft


def _upgraded_member(classic: ClassicGroup, member: Member, topics: Topics) -> ConsumerMember:
    subscription = subscription_of(classic, member)
    return ConsumerMember(
        member_id=member.member_id,
        member_epoch=classic.generation,
        previous_epoch=classic.generation,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=frozenset(subscription.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        assigned=_assigned(classic, member, topics),
        classic=ClassicSide(member.session_timeout_ms, member.protocols),
    )


def subscription_of(classic: ClassicGroup, member: Member) -> ConsumerProtocolSubscription:
    """Return a classic member's subscription. Raises `KafkaError` if it is malformed."""
    try:
        return decode_versioned(ConsumerProtocolSubscription, member.metadata(classic.protocol))
    except WireError as error:
        raise cannot_upgrade(
            classic.group_id, "the embedded consumer protocol is malformed."
        ) from error


def _assigned(classic: ClassicGroup, member: Member, topics: Topics) -> dict[bytes, dict[int, int]]:
    if not member.assignment:
        return {}
    try:
        assignment = decode_versioned(ConsumerProtocolAssignment, member.assignment)
    except WireError as error:
        raise cannot_upgrade(
            classic.group_id, "the embedded consumer protocol is malformed."
        ) from error
    if assignment.user_data:
        raise cannot_upgrade(
            classic.group_id,
            "an unsupported custom assignor is in use. Please switch to a default assignor "
            "before re-attempting the upgrade.",
        )
    named = {assigned.topic: assigned.partitions for assigned in assignment.assigned_partitions}
    return {
        topic_id: dict.fromkeys(partitions, classic.generation)
        for name, partitions in named.items()
        if partitions and (topic_id := topics.topic_id(name)) is not None
    }


def cannot_upgrade(group_id: str, reason: str) -> KafkaError:
    """Return the error for a classic group that cannot be upgraded."""
    text = f"Cannot upgrade classic group {group_id} to consumer group because {reason}"
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, text)


def downgraded(
    group: ConsumerGroup, leaving: Collection[str], topics: Topics, wall_ms: int
) -> ClassicGroup:
    """Return a classic group of the members that stay, all of which use the classic protocol.

    Its generation is the consumer group's epoch.
    """
    classic = ClassicGroup(group.group_id)
    assert group.members.keys() > set(leaving), "a group without members is deleted instead"
    classic.generation = group.epoch
    classic.protocol_type = CONSUMER
    for member in group.members.values():
        if member.member_id not in leaving:
            classic.add(_downgraded_member(member))
    classic.protocol = classic.selected_protocol()
    for classic_member in classic.members.values():
        target = group.target.get(classic_member.member_id, {})
        partitions = {topic: sorted(target[topic]) for topic in target}
        classic_member.assignment = encode_assignment(
            classic_member.metadata(classic.protocol), partitions, topics
        )
    classic.transition(GroupState.STABLE, wall_ms)
    return classic


def _downgraded_member(member: ConsumerMember) -> Member:
    assert member.classic is not None
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocols=member.classic.protocols,
    )


def classic_record(classic: ClassicGroup) -> GroupRecord:
    """Return the record of a classic group with its assignment."""
    assignments = {member.member_id: member.assignment for member in classic.members.values()}
    return classic.record(assignments)


def encode_assignment(
    subscription: bytes, partitions: Mapping[bytes, Iterable[int]], topics: Topics
) -> bytes:
    """Return an assignment for a classic member, in the version of its subscription."""
    named = [
        TopicPartition(topic=name, partitions=sorted(partitions[topic_id]))
        for topic_id in partitions
        if (name := topics.topic_name(topic_id)) is not None
    ]
    named.sort(key=lambda assigned: assigned.topic)
    version = min(version_of(subscription), ConsumerProtocolAssignment.__versions__.highest)
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=named), version)
