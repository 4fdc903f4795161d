"""Responses of ConsumerGroupDescribe, versions 0 and 1."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.group.config import Topics
from lakelog.coordinator.group.consumer.group import ConsumerGroup
from lakelog.coordinator.group.consumer.member import ConsumerMember
from lakelog.protocol.groups import Assignment, DescribedConsumerGroup, Member, TopicPartitions

_CLASSIC_MEMBER = 0
_CONSUMER_MEMBER = 1


def describe_consumer_group(
    group: ConsumerGroup, topics: Topics, default_assignor: str
) -> DescribedConsumerGroup:
    """Return the description of a consumer group, without deleted topics."""
    return DescribedConsumerGroup(
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor(default_assignor),
        members=[_member(group, member, topics) for member in group.members.values()],
    )


def consumer_group_not_found(group_id: str, *, is_classic: bool) -> DescribedConsumerGroup:
    """Return GROUP_ID_NOT_FOUND for a group that does not exist or is a classic one."""
    what = "is not a consumer group" if is_classic else "not found"
    return DescribedConsumerGroup(
        group_id=group_id,
        error_code=ErrorCode.GROUP_ID_NOT_FOUND,
        error_message=f"Group {group_id} {what}.",
    )


def _member(group: ConsumerGroup, member: ConsumerMember, topics: Topics) -> Member:
    held: dict[bytes, list[int]] = {}
    for topic_id, partition in member.held():
        held.setdefault(topic_id, []).append(partition)
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=_assignment(held, topics),
        target_assignment=_assignment(group.target.get(member.member_id, {}), topics),
        member_type=_CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
    )


def _assignment(partitions: Mapping[bytes, Iterable[int]], topics: Topics) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(
                topic_id=topic_id, topic_name=name, partitions=sorted(partitions[topic_id])
            )
            for topic_id in partitions
            if (name := topics.topic_name(topic_id)) is not None
        ]
    )
