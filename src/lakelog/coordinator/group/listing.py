"""Responses of DescribeGroups (versions 0 to 6) and ListGroups (versions 0 to 5)."""

from __future__ import annotations

from collections.abc import Iterable

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.group.classic.group import ClassicGroup, GroupState
from lakelog.coordinator.group.classic.member import Member
from lakelog.coordinator.group.consumer.group import ConsumerGroup
from lakelog.protocol.describe_groups import DescribedGroup, DescribedGroupMember
from lakelog.protocol.list_groups import ListedGroup

_NOT_FOUND_SINCE = 6
_CLASSIC = "classic"
_CONSUMER = "consumer"


def describe_group(group_id: str, group: ClassicGroup | None, known: bool) -> DescribedGroup | None:
    """Return the description of a classic group, None if it does not exist.

    Args:
        known: whether the group has committed offsets. A group that has only offsets is Empty.
    """
    if group is None:
        if not known:
            return None
        return DescribedGroup(group_id=group_id, group_state=GroupState.EMPTY)
    protocol = group.protocol if group.state is GroupState.STABLE else None
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol or "",
        members=[_member(member, protocol) for member in group.members.values()],
    )


def _member(member: Member, protocol: str | None) -> DescribedGroupMember:
    """Return a member; subscription and assignment are valid only while the group is stable."""
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata(protocol) if protocol is not None else b"",
        member_assignment=member.assignment if protocol is not None else b"",
    )


def group_not_found(group_id: str, version: int, *, is_consumer: bool = False) -> DescribedGroup:
    """Return the description of a group that is no classic group.

    Before version 6 it is Dead, without an error code (KIP-1043).
    """
    what = "is not a classic group" if is_consumer else "not found"
    if version < _NOT_FOUND_SINCE:
        return DescribedGroup(group_id=group_id, group_state=GroupState.DEAD)
    return DescribedGroup(
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

    def accepts(self, listed: ListedGroup) -> bool:
        """Return whether a group matches both lists."""
        return (not self._states or listed.group_state.lower() in self._states) and (
            not self._types or listed.group_type in self._types
        )


def list_group(group_id: str, group: ClassicGroup | ConsumerGroup | None) -> ListedGroup:
    """Return the group's entry of ListGroups; `group` is None if it has offsets only."""
    if isinstance(group, ConsumerGroup):
        kind, protocol_type, state = _CONSUMER, _CONSUMER, str(group.state)
    elif group is None:
        kind, protocol_type, state = _CLASSIC, "", str(GroupState.EMPTY)
    else:
        kind, protocol_type, state = _CLASSIC, group.protocol_type or "", str(group.state)
    return ListedGroup(
        group_id=group_id, protocol_type=protocol_type, group_state=state, group_type=kind
    )
