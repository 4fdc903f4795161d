"""JoinGroup (key 11): join a classic group or its next generation."""

from __future__ import annotations

from lakelog.protocol.api import Api
from lakelog.wire.schema import (
    Buffer,
    Message,
    Struct,
    array,
    binary,
    boolean,
    int16,
    int32,
    string,
)


class JoinGroupRequestProtocol(Struct):
    """An assignor that the member supports, with the subscription for this assignor."""

    name: str = string()
    metadata: Buffer = binary()


class JoinGroupRequest(Message, versions="0-9", flexible="6+"):
    """Joins a group; the response is sent when all members have joined.

    Versions: 1 adds the rebalance timeout, 4 makes a new member join twice, the second time with
    its assigned id (KIP-394), 5 adds static members (KIP-345), 6 is flexible, 8 the reason.
    """

    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32("1+", default=-1)
    """The time in which members must rejoin during a rebalance."""
    member_id: str = string()
    """Empty for a new member."""
    group_instance_id: str | None = string("5+", nullable="0+", default=None)
    """The id of a static member, null for a dynamic member."""
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    """In order of preference."""
    reason: str | None = string("8+", nullable="0+", default=None)


class JoinGroupResponseMember(Struct):
    """A member with the data that the group's leader needs to assign."""

    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="0+", default=None)
    metadata: Buffer = binary()


class JoinGroupResponse(Message, versions="0-9", flexible="6+"):
    """The new generation. Only the response to the leader contains the members.

    Versions: 5 adds static members, 6 is flexible, 7 the protocol type and a null protocol name on
    errors, 9 lets a returning static leader skip the assignment (KIP-814).
    """

    throttle_time_ms: int = int32("2+")
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string("7+", nullable="0+", default=None)
    protocol_name: str | None = string(nullable="7+")
    """The selected assignor, which all members support."""
    leader: str = string()
    skip_assignment: bool = boolean("9+")
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)


API = Api(11, JoinGroupRequest, JoinGroupResponse)
