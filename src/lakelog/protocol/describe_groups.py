"""DescribeGroups (key 15): state and members of classic groups."""

from __future__ import annotations

from lakelog.protocol.api import Api
from lakelog.wire.schema import (
    Buffer,
    Message,
    Struct,
    array,
    binary,
    boolean,
    error_text,
    int16,
    int32,
    string,
)


class DescribeGroupsRequest(Message, versions="0-6", flexible="5+"):
    """Requests groups that this broker coordinates.

    Versions: 3 adds permitted operations, 5 is flexible.
    """

    groups: list[str] = array(string)
    include_authorized_operations: bool = boolean("3+")


class DescribedGroupMember(Struct):
    """A member with subscription and assignment, in the assignor's own formats."""

    member_id: str = string()
    group_instance_id: str | None = string("4+", nullable="0+", default=None)
    client_id: str = string()
    client_host: str = string()
    member_metadata: Buffer = binary()
    member_assignment: Buffer = binary()


class DescribedGroup(Struct):
    """A group, its state and its members."""

    error_code: int = int16()
    error_message: str | None = error_text("6+", default=None)
    group_id: str = string()
    group_state: str = string()
    """PreparingRebalance, CompletingRebalance, Stable, Empty or Dead."""
    protocol_type: str = string()
    protocol_data: str = string()
    """The name of the selected assignor."""
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32("3+", default=-(2**31))
    """One bit per operation; the minimum int32 when not requested."""


class DescribeGroupsResponse(Message, versions="0-6", flexible="5+"):
    """One entry for each group; a group that does not exist has the state "Dead".

    Versions: 4 adds static members, 6 returns GROUP_ID_NOT_FOUND and a message for an
    unknown group (KIP-1043).
    """

    throttle_time_ms: int = int32("1+")
    groups: list[DescribedGroup] = array(DescribedGroup)


API = Api(15, DescribeGroupsRequest, DescribeGroupsResponse)
