"""The requests of members of groups, of the classic and of the consumer protocol (KIP-848)."""

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
    struct,
    uuid,
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


class SyncGroupRequestAssignment(Struct):
    """The assignment of one member, in the assignor's own format."""

    member_id: str = string()
    assignment: Buffer = binary()


class SyncGroupRequest(Message, versions="0-5", flexible="4+"):
    """Requests a member's assignment; the leader's request contains all assignments.

    Versions: 3 adds static members, 4 is flexible, 5 checks protocol type and name.
    """

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="0+", default=None)
    protocol_type: str | None = string("5+", nullable="0+", default=None)
    protocol_name: str | None = string("5+", nullable="0+", default=None)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


class SyncGroupResponse(Message, versions="0-5", flexible="4+"):
    """The assignment of this member."""

    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    protocol_type: str | None = string("5+", nullable="0+", default=None)
    protocol_name: str | None = string("5+", nullable="0+", default=None)
    assignment: Buffer = binary()


class HeartbeatRequest(Message, versions="0-4", flexible="4+"):
    """Extends a member's session; REBALANCE_IN_PROGRESS announces a rebalance.

    Versions: 3 adds static members, 4 is flexible.
    """

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="0+", default=None)


class HeartbeatResponse(Message, versions="0-4", flexible="4+"):
    """The result."""

    throttle_time_ms: int = int32("1+")
    error_code: int = int16()


class MemberIdentity(Struct):
    """A member by its id, or by its instance id with an empty member id."""

    member_id: str = string()
    group_instance_id: str | None = string(nullable="0+", default=None)
    reason: str | None = string("5+", nullable="0+", default=None)


class LeaveGroupRequest(Message, versions="0-5", flexible="4+"):
    """Removes one member, or from version 3 on several, including static members.

    Versions: 4 is flexible, 5 adds a reason.
    """

    group_id: str = string()
    member_id: str = string("0-2")
    members: list[MemberIdentity] = array(MemberIdentity, "3+")


class MemberResponse(Struct):
    """The result for one member."""

    member_id: str = string()
    group_instance_id: str | None = string(nullable="0+")
    error_code: int = int16()


class LeaveGroupResponse(Message, versions="0-5", flexible="4+"):
    """The result; from version 3 on also one for each member."""

    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, "3+")


class TopicPartitions(Struct):
    """Partitions of one topic."""

    topic_id: bytes = uuid()
    partitions: list[int] = array(int32)


class ConsumerGroupHeartbeatRequest(Message, versions="0-1", flexible="0+"):
    """Joins a group, stays in it, or leaves it. Null fields are unchanged.

    Versions: 1 adds subscriptions by regular expression, and member ids that clients choose
    (KIP-1082).
    """

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    """0: join, -1: leave, -2: leave temporarily (static members), else the member's epoch."""
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    """Maximum time in which the member must revoke partitions."""
    subscribed_topic_names: list[str] | None = array(string, nullable="0+", default=None)
    subscribed_topic_regex: str | None = string("1+", nullable="1+", default=None)
    server_assignor: str | None = string(nullable="0+", default=None)
    topic_partitions: list[TopicPartitions] | None = array(
        TopicPartitions, nullable="0+", default=None
    )
    """The partitions that the member owns."""


class Assignment(Struct):
    """All partitions that the member may read now."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class ConsumerGroupHeartbeatResponse(Message, versions="0-1", flexible="0+"):
    """The member's epoch, and its assignment if it has changed."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = error_text(default=None)
    member_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = struct(Assignment, nullable="0+", default=None)


APIS = (
    Api(11, JoinGroupRequest, JoinGroupResponse),
    Api(12, HeartbeatRequest, HeartbeatResponse),
    Api(13, LeaveGroupRequest, LeaveGroupResponse),
    Api(14, SyncGroupRequest, SyncGroupResponse),
    Api(68, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse),
)
