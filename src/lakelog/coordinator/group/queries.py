"""Requests that read a shard's groups and change nothing, and their responses.

These are DescribeGroups (versions 0 to 6) and ListGroups (0 to 5) for groups of both protocols, and
ConsumerGroupDescribe (0 and 1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.group.classic.group import ClassicGroup, GroupState
from lakelog.coordinator.group.classic.member import Member
from lakelog.coordinator.group.config import Topics
from lakelog.coordinator.group.consumer.group import ConsumerGroup
from lakelog.coordinator.group.consumer.member import ConsumerMember
from lakelog.coordinator.group.offset_commits import check_consumer_fetch
from lakelog.coordinator.group.offsets import OffsetTable
from lakelog.coordinator.group.records import OffsetCommitValue
from lakelog.coordinator.group.state import AnyGroup, ShardState
from lakelog.protocol import groups as messages
from lakelog.protocol.offsets import OffsetFetchRequestGroup

_CLASSIC_MEMBER = 0
_CONSUMER_MEMBER = 1


def describe_consumer_group(
    group: ConsumerGroup, topics: Topics, default_assignor: str
) -> messages.DescribedConsumerGroup:
    """Return the description of a consumer group, without deleted topics."""
    return messages.DescribedConsumerGroup(
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor(default_assignor),
        members=[_described_member(group, member, topics) for member in group.members.values()],
    )


def consumer_group_not_found(group_id: str, *, is_classic: bool) -> messages.DescribedConsumerGroup:
    """Return GROUP_ID_NOT_FOUND for a group that does not exist or is a classic one."""
    what = "is not a consumer group" if is_classic else "not found"
    return messages.DescribedConsumerGroup(
        group_id=group_id,
        error_code=ErrorCode.GROUP_ID_NOT_FOUND,
        error_message=f"Group {group_id} {what}.",
    )


def _described_member(
    group: ConsumerGroup, member: ConsumerMember, topics: Topics
) -> messages.Member:
    held: dict[bytes, list[int]] = {}
    for topic_id, partition in member.held():
        held.setdefault(topic_id, []).append(partition)
    return messages.Member(
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


def _assignment(partitions: Mapping[bytes, Iterable[int]], topics: Topics) -> messages.Assignment:
    return messages.Assignment(
        topic_partitions=[
            messages.TopicPartitions(
                topic_id=topic_id, topic_name=name, partitions=sorted(partitions[topic_id])
            )
            for topic_id in partitions
            if (name := topics.topic_name(topic_id)) is not None
        ]
    )


_NOT_FOUND_SINCE = 6
_CLASSIC = "classic"
_CONSUMER = "consumer"


def describe_group(
    group_id: str, group: ClassicGroup | None, has_offsets: bool
) -> messages.DescribedGroup | None:
    """Return the description of a classic group, None if it does not exist.

    Args:
        has_offsets: whether the group has committed offsets. A group that has only offsets is
            Empty.
    """
    if group is None:
        if not has_offsets:
            return None
        return messages.DescribedGroup(group_id=group_id, group_state=GroupState.EMPTY)
    protocol = group.protocol if group.state is GroupState.STABLE else None
    return messages.DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol or "",
        members=[_member(member, protocol) for member in group.members.values()],
    )


def _member(member: Member, protocol: str | None) -> messages.DescribedGroupMember:
    """Return a member; subscription and assignment are valid only while the group is stable."""
    return messages.DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata(protocol) if protocol is not None else b"",
        member_assignment=member.assignment if protocol is not None else b"",
    )


def group_not_found(
    group_id: str, version: int, *, is_consumer: bool = False
) -> messages.DescribedGroup:
    """Return the description of a group that is no classic group.

    Before version 6 it is Dead, without an error code (KIP-1043).
    """
    what = "is not a classic group" if is_consumer else "not found"
    if version < _NOT_FOUND_SINCE:
        return messages.DescribedGroup(group_id=group_id, group_state=GroupState.DEAD)
    return messages.DescribedGroup(
        group_id=group_id,
        group_state=GroupState.DEAD,
        error_code=ErrorCode.GROUP_ID_NOT_FOUND,
        error_message=f"Group {group_id} {what}.",
    )


class GroupFilter:
    """States and types to list. An empty list matches all; case is ignored."""

    def __init__(self, states: Iterable[str], types: Iterable[str]) -> None:
        self._states = {state.lower() for state in states}
        self._types = {kind.lower() for kind in types}

    def accepts(self, listed: messages.ListedGroup) -> bool:
        """Return whether a group matches both lists."""
        return (not self._states or listed.group_state.lower() in self._states) and (
            not self._types or listed.group_type in self._types
        )


def list_group(group_id: str, group: ClassicGroup | ConsumerGroup | None) -> messages.ListedGroup:
    """Return the group's entry of ListGroups; `group` is None if it has offsets only."""
    if isinstance(group, ConsumerGroup):
        kind, protocol_type, state = _CONSUMER, _CONSUMER, str(group.state)
    elif group is None:
        kind, protocol_type, state = _CLASSIC, "", str(GroupState.EMPTY)
    else:
        kind, protocol_type, state = _CLASSIC, group.protocol_type or "", str(group.state)
    return messages.ListedGroup(
        group_id=group_id, protocol_type=protocol_type, group_state=state, group_type=kind
    )


class GroupProgress(NamedTuple):
    """The number of a group's members, and its committed offsets by topic and partition."""

    group_id: str
    members: int
    offsets: Mapping[str, Mapping[int, OffsetCommitValue]]


class Queries:
    """The groups and offsets of one shard, read only."""

    def __init__(self, state: ShardState) -> None:
        self._state = state

    def describe(self, group_id: str, version: int) -> messages.DescribedGroup:
        """Return the description of a classic group, for DescribeGroups.

        An unknown group is Dead, from version 6 on with GROUP_ID_NOT_FOUND (KIP-1043).
        """
        if self._state.consumer_groups.get(group_id) is not None:
            return group_not_found(group_id, version, is_consumer=True)
        group = self._state.classic.get(group_id)
        if group is not None and self._state.classic.is_unused(group):
            group = None
        described = describe_group(group_id, group, group_id in self._state.offsets)
        return described if described is not None else group_not_found(group_id, version)

    def describe_consumer(self, group_id: str) -> messages.DescribedConsumerGroup:
        """Return the description of a consumer group, for ConsumerGroupDescribe."""
        consumer = self._state.consumer_groups.get(group_id)
        if consumer is None:
            is_classic = (
                self._state.any_group(group_id) is not None or group_id in self._state.offsets
            )
            return consumer_group_not_found(group_id, is_classic=is_classic)
        default = self._state.consumers.rebalancer.default_assignor
        return describe_consumer_group(consumer, self._state.topics, default)

    def progress(self) -> Iterator[GroupProgress]:
        """Yield members and committed offsets of every group that ListGroups returns."""
        for listed in self.list_groups(GroupFilter((), ())):
            group_id = listed.group_id
            group = self._state.any_group(group_id)
            members = len(group.members) if group is not None else 0
            yield GroupProgress(group_id, members, self._state.offsets.of_group(group_id))

    def list_groups(self, group_filter: GroupFilter) -> Iterator[messages.ListedGroup]:
        """Yield the groups that match the filter."""
        groups: dict[str, AnyGroup | None] = dict.fromkeys(self._state.offsets.group_ids)
        for group_id, group in self._state.classic.items():
            if not self._state.classic.is_unused(group):
                groups[group_id] = group
        groups |= self._state.consumers.by_id
        for group_id, any_group in groups.items():
            listed = list_group(group_id, any_group)
            if group_filter.accepts(listed):
                yield listed

    def offsets_for(self, request: OffsetFetchRequestGroup) -> OffsetTable:
        """Return the offsets of the shard for OffsetFetch.

        Raises `KafkaError` with UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH or ILLEGAL_GENERATION if the
        request names another member or epoch than the consumer group has.
        """
        consumer = self._state.consumer_groups.get(request.group_id)
        if consumer is not None:
            check_consumer_fetch(consumer, request.member_id, request.member_epoch)
        return self._state.offsets
